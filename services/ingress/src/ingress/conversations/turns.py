"""Reading turns back: the state that the event stream builds up, from the rows."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from everturn.wire.materialized import FetchView
from everturn.wire.turn_index import TurnIndexView
from everturn.wire.views import StepDetail
from ingress.admission.paths import ConversationPath, TurnPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.admission.slots import OpenSlots
from ingress.auth.gate import Me
from ingress.conversations.endpoints import Service
from ingress.conversations.round_context import MAX_ROUND, RoundContextOut, RoundContexts, round_contexts
from ingress.conversations.schemas import MAX_STEP_CHARS, FetchIn, TurnOut, TurnsIn, TurnsOut

READS, READS_OF_PERSON = 64, 16
"""Answers with turns that this process may hold at once, those of one person among them. Each is whole in memory until
its client has taken it, and has several megabytes where messages are large."""


def build_read_slots() -> OpenSlots:
    """The slots of one application."""
    return OpenSlots(max_total=READS, max_per_user=READS_OF_PERSON, what="read", many="reads")


async def hold_read(request: Request, me: Me) -> AsyncGenerator[None]:
    """Hold a slot until the answer is sent. Raises a 429 problem for the person's cap, 503 for the process's."""
    with cast(OpenSlots, request.app.state.reads).holding(me):
        yield


router = APIRouter(
    prefix="/conversations/{tenant}/{project}",
    route_class=AdmittedRoute,
    tags=["turns"],
    dependencies=[Depends(hold_read)],
)


@router.post("/fetch", responses=problems(408, 413, 415), response_model=FetchView)
async def fetch(body: FetchIn, me: Me, service: Service) -> Response:
    """A conversation with its latest or the selected turns, oldest first."""
    return await _answer(await service.fetch(me, body))


@router.get("/{conversation_id}/turns/{turn_id}", responses=problems(), response_model=TurnOut)
async def get_turn(me: Me, service: Service, conversation_id: ConversationPath, turn_id: TurnPath) -> Response:
    """One turn with everything that happened in it."""
    return await _answer(await service.load_turn(me, conversation_id, turn_id))


@router.get("/{conversation_id}/turns/{turn_id}/index", responses=problems(), response_model=TurnIndexView)
async def get_turn_index(me: Me, service: Service, conversation_id: ConversationPath, turn_id: TurnPath) -> Response:
    """What can be read back of a turn: its refs by section, each with a short description. Built for each request."""
    return await _answer(await service.load_turn_index(me, conversation_id, turn_id), exclude_none=False)


@router.get("/{conversation_id}/turns/{turn_id}/steps/{step}", responses=problems(), response_model=StepDetail)
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


@router.get("/{conversation_id}/turns/{turn_id}/rounds/{number}/context", responses=problems())
async def get_round_context(
    *,
    me: Me,
    contexts: Annotated[RoundContexts, Depends(round_contexts)],
    conversation_id: ConversationPath,
    turn_id: TurnPath,
    number: Annotated[int, Path(ge=1, le=MAX_ROUND, description="The round, from 1.", examples=[1])],
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of parts on a page.")] = 200,
    cursor: Annotated[str | None, Query(description="The `next_cursor` of the previous page.")] = None,
) -> RoundContextOut:
    """The model's input in a round, part by part: origin, tokens, cache state and text."""
    return await contexts.load(me, conversation_id, turn_id, number, cursor=cursor, limit=limit)


@router.post("/{conversation_id}/turns-with-feedbacks", responses=problems(408, 413, 415), response_model=TurnsOut)
async def turns_with_feedbacks(body: TurnsIn, me: Me, service: Service, conversation_id: ConversationPath) -> Response:
    """Turns with feedback, all or those selected; the newest are on the first page."""
    return await _answer(await service.load_judged_turns(me, conversation_id, body))


async def _answer(view: BaseModel, *, exclude_none: bool = True) -> Response:
    """The view as JSON, written in a thread: megabytes of it would hold up everybody else's events."""
    body = await asyncio.to_thread(_write, view, exclude_none)
    return Response(body, media_type="application/json")


def _write(view: BaseModel, exclude_none: bool) -> bytes:
    return view.model_dump_json(by_alias=True, exclude_none=exclude_none).encode()
