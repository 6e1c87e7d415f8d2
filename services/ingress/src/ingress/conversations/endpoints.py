"""Conversations: list, create, details, rename and archive, erase."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from everturn.model.conversations import ConversationState
from everturn.ports.conversations import ConversationQuery
from everturn.timeline.conversation_state import build_conversation_view
from everturn.wire.views import ConversationView
from ingress.admission.json_body import Cursor
from ingress.admission.lines import Line
from ingress.admission.paths import ConversationPath
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.conversations.schemas import (
    ConversationIn,
    ConversationList,
    ConversationOut,
    ConversationPatch,
    ErasedOut,
    State,
)
from ingress.conversations.service import ConversationService, conversation_service
from ingress.errors import unprocessable

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["conversations"])
Service = Annotated[ConversationService, Depends(conversation_service)]


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
    """Rename, archive or unarchive a conversation."""
    if body.title is None and body.archived is None:
        raise unprocessable("Set title or archived.")
    saved = await service.save(me, conversation_id, title=body.title, archived=body.archived)
    return build_conversation_view(saved)


@router.delete("/{conversation_id}", responses=problems())
async def delete_conversation(me: Me, service: Service, conversation_id: ConversationPath) -> ErasedOut:
    """Erase a conversation with all its rows and objects. A running turn ends without an answer."""
    return await service.erase(me, conversation_id)
