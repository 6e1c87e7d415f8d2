"""Conversations and their turns: list, create, read, rename and archive, erase."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from everturn.conversations.model import (
    ConversationQuery,
    ConversationState,
    ConversationView,
    build_conversation_view,
)
from everturn.events.materialized import FetchView
from everturn.events.views import StepDetail
from everturn.timeline.turn_index import TurnIndexView
from ingress.admission.route import AdmittedRoute
from ingress.admission.slots import OpenSlots
from ingress.auth.gate import Me
from ingress.conversations.round_context import MAX_ROUND, RoundContextOut, RoundContexts, round_contexts
from ingress.conversations.schemas import (
    MAX_STEP_CHARS,
    ConversationIn,
    ConversationList,
    ConversationOut,
    ConversationPatch,
    ErasedOut,
    FetchIn,
    State,
    TurnOut,
    TurnsIn,
    TurnsOut,
)
from ingress.conversations.service import ConversationService, conversation_service
from ingress.fields import ConversationPath, Cursor, Line, TurnPath
from ingress.openapi.responses import problems

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["conversations"])
Service = Annotated[ConversationService, Depends(conversation_service)]

READS, READS_OF_PERSON = 64, 16
"""Responses with turns that this process can hold at once, and how many of them for one person. Each stays in memory
until its client has read it, and has several megabytes when messages are large."""


@router.get("", responses=problems())
async def list_conversations(
    *,
    me: Me,
    service: Service,
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of rows on a page.")] = 50,
    cursor: Annotated[Cursor | None, Query(description="The `next_cursor` of the previous page.")] = None,
    q: Annotated[Line | None, Query(description="Part of the title.", examples=["sales"])] = None,
    state: Annotated[State | None, Query(description="Only conversations in this state.")] = None,
    archived: Annotated[bool, Query(description="List archived conversations instead.")] = False,
) -> ConversationList:
    """The caller's conversations, most recently active first."""
    wanted = ConversationState(state) if state else None
    query = ConversationQuery(limit=limit, cursor=cursor, search=q or None, state=wanted, archived=archived)
    page = await service.load_page(me, query)
    items = tuple(build_conversation_view(conversation) for conversation in page.conversations)
    return ConversationList(items=items, next_cursor=page.next_cursor)


@router.post("", status_code=201, responses=problems(408, 413, 415))
async def create_conversation(body: ConversationIn, me: Me, service: Service) -> ConversationView:
    """Create a conversation. The first message to `new` does so too."""
    return build_conversation_view(await service.create(me, title=body.title, bundle_id=body.bundle_id))


@router.get("/{conversation_id}", responses=problems())
async def get_conversation(me: Me, service: Service, conversation_id: ConversationPath) -> ConversationOut:
    """Title, state and times of a conversation, and its queue position while it waits."""
    return await service.load(me, conversation_id)


@router.patch("/{conversation_id}", responses=problems(408, 413, 415))
async def patch_conversation(
    body: ConversationPatch, me: Me, service: Service, conversation_id: ConversationPath
) -> ConversationView:
    """Change a conversation, such as its title. Absent fields stay as they are."""
    return build_conversation_view(await service.save(me, conversation_id, body.build_changes()))


@router.delete("/{conversation_id}", responses=problems())
async def delete_conversation(me: Me, service: Service, conversation_id: ConversationPath) -> ErasedOut:
    """Erase a conversation with all its rows and objects. A running turn ends without an answer."""
    return await service.erase(me, conversation_id)


def build_read_slots() -> OpenSlots:
    """Build the slots of one application."""
    return OpenSlots(max_total=READS, max_per_user=READS_OF_PERSON, singular="read", plural="reads")


async def hold_read(request: Request, me: Me) -> AsyncGenerator[None]:
    """Hold a slot until the response is sent. Raises a 429 problem for the person's cap, 503 for the process's."""
    with cast(OpenSlots, request.app.state.reads).holding(me):
        yield


turn_router = APIRouter(
    prefix="/conversations/{tenant}/{project}",
    route_class=AdmittedRoute,
    tags=["turns"],
    dependencies=[Depends(hold_read)],
)


@turn_router.post("/fetch", responses=problems(408, 413, 415), response_model=FetchView)
async def fetch(body: FetchIn, me: Me, service: Service) -> Response:
    """A conversation with its latest or the selected turns, oldest first."""
    return await _answer(await service.fetch(me, body))


@turn_router.get("/{conversation_id}/turns/{turn_id}", responses=problems(), response_model=TurnOut)
async def get_turn(me: Me, service: Service, conversation_id: ConversationPath, turn_id: TurnPath) -> Response:
    """One turn with everything that happened in it."""
    return await _answer(await service.load_turn(me, conversation_id, turn_id))


@turn_router.get("/{conversation_id}/turns/{turn_id}/index", responses=problems(), response_model=TurnIndexView)
async def get_turn_index(me: Me, service: Service, conversation_id: ConversationPath, turn_id: TurnPath) -> Response:
    """What can be read back of a turn: its refs by section, each with a short description. Built for each request."""
    return await _answer(await service.load_turn_index(me, conversation_id, turn_id), exclude_none=False)


@turn_router.get("/{conversation_id}/turns/{turn_id}/steps/{step}", responses=problems(), response_model=StepDetail)
async def get_step(
    *,
    me: Me,
    service: Service,
    conversation_id: ConversationPath,
    turn_id: TurnPath,
    step: Annotated[str, Path(max_length=MAX_STEP_CHARS, description="The `step` of one of the turn's steps.")],
) -> Response:
    """One step with its full program, parameters and result, which other views shorten."""
    return await _answer(await service.load_step(me, conversation_id, turn_id, step))


@turn_router.get(
    "/{conversation_id}/turns/{turn_id}/rounds/{number}/context", responses=problems(), response_model=RoundContextOut
)
async def get_round_context(
    *,
    me: Me,
    contexts: Annotated[RoundContexts, Depends(round_contexts)],
    conversation_id: ConversationPath,
    turn_id: TurnPath,
    number: Annotated[int, Path(ge=1, le=MAX_ROUND, description="The round, from 1.", examples=[1])],
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of parts on a page.")] = 200,
    cursor: Annotated[str | None, Query(description="The `next_cursor` of the previous page.")] = None,
) -> Response:
    """The model's input in a round, part by part: origin, tokens, cache state and text."""
    view = await contexts.load(me, conversation_id, turn_id, number, cursor=cursor, limit=limit)
    return await _answer(view, exclude_none=False)


@turn_router.post("/{conversation_id}/turns-with-feedbacks", responses=problems(408, 413, 415), response_model=TurnsOut)
async def turns_with_feedbacks(body: TurnsIn, me: Me, service: Service, conversation_id: ConversationPath) -> Response:
    """Turns with feedback, all or those selected; the newest are on the first page."""
    return await _answer(await service.load_turns_with_feedback(me, conversation_id, body))


async def _answer(view: BaseModel, *, exclude_none: bool = True) -> Response:
    """The view as JSON, serialized in a thread: megabytes would block the event loop."""
    body = await asyncio.to_thread(_write, view, exclude_none)
    return Response(body, media_type="application/json")


def _write(view: BaseModel, exclude_none: bool) -> bytes:
    return view.model_dump_json(by_alias=True, exclude_none=exclude_none).encode()
