"""Listing, changing, erasing and reading conversations. A turn can have megabytes, so threads build the views."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import structlog
from fastapi import Request

from everturn.conversations.model import (
    Conversation,
    ConversationChanges,
    ConversationPage,
    ConversationQuery,
    Conversations,
    build_conversation_view,
)
from everturn.core.errors import EverturnError, NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, Ids, TurnId, is_id
from everturn.events.materialized import FetchView, build_derived_artifacts
from everturn.events.stream import EventWriter, Hint, Notifications
from everturn.events.turn_view import TurnPage, build_state, try_build_step_detail
from everturn.events.views import StepDetail, TurnView
from everturn.files.objects import Objects
from everturn.files.ports import Artifacts
from everturn.history.repository import GitHistories
from everturn.lifecycle.erasure import delete_erased_objects
from everturn.queue.model import Queue, WaitingTurn
from everturn.timeline.sources import Source
from everturn.timeline.turn_index import TurnIndexView, build_turn_index
from everturn.turns.ports import Turns
from ingress.bundles import Bundles
from ingress.conversations.schemas import MAX_TURN_IDS, ConversationOut, ErasedOut, FetchIn, TurnOut, TurnsIn, TurnsOut

_log = structlog.get_logger(__name__)

DELETE_TRIES = 3


class ConversationService:
    """Implements the conversation endpoints."""

    def __init__(
        self,
        *,
        conversations: Conversations,
        turns: Turns,
        artifacts: Artifacts,
        objects: Objects,
        histories: GitHistories,
        events: EventWriter,
        notifications: Notifications,
        queue: Queue,
        ids: Ids,
        bundles: Bundles,
    ) -> None:
        self._conversations = conversations
        self._turns = turns
        self._artifacts = artifacts
        self._objects = objects
        self._histories = histories
        self._events = events
        self._notifications = notifications
        self._queue = queue
        self._ids = ids
        self._bundles = bundles

    async def load_page(self, principal: Principal, query: ConversationQuery) -> ConversationPage:
        """One page of the caller's conversations."""
        return await self._conversations.load_page(principal, query)

    async def load(self, principal: Principal, conversation_id: ConversationId) -> ConversationOut:
        """One conversation, with its queue position while it waits."""
        status = await self._turns.load_status(principal, conversation_id)
        shown, waiting = build_conversation_view(status.conversation).model_dump(), status.waiting
        return ConversationOut(**shown, **_position_of(waiting), turn_id=waiting.turn_id if waiting else None)

    async def create(self, principal: Principal, *, title: str, bundle_id: str | None) -> Conversation:
        """Create a conversation without turns. Raises a 422 problem for a bundle that the caller can't use."""
        if bundle_id is not None:
            (await self._bundles.load_open(principal)).check(bundle_id)
        return await self._conversations.create(principal, self._ids.conversation(), title=title, bundle_id=bundle_id)

    async def save(
        self, principal: Principal, conversation_id: ConversationId, changes: ConversationChanges
    ) -> Conversation:
        """Change a conversation."""
        saved = await self._conversations.save(principal, conversation_id, changes)
        await self._send_status_hint(conversation_id)
        return saved

    async def erase(self, principal: Principal, conversation_id: ConversationId) -> ErasedOut:
        """Delete the rows in one transaction, then the events, the git history that this process keeps, and all
        objects, including those of refused commits."""
        erasure = await self._conversations.erase(principal, conversation_id)
        await self._erase_events(conversation_id)
        await self._histories.remove(conversation_id)
        await self._send_status_hint(conversation_id)
        objects = await self._delete_objects(principal, conversation_id, erasure.object_keys)
        left = 0 if objects is not None else len(erasure.object_keys)
        return ErasedOut(
            conversation_id=conversation_id, rows=dict(erasure.rows), objects=objects or 0, objects_left=left
        )

    async def _erase_events(self, conversation_id: ConversationId) -> None:
        try:
            await self._events.erase(conversation_id)
        except Unavailable as error:
            # The events expire by themselves an hour after the last one.
            _log.error("Could not delete the events of an erased conversation", error=str(error))

    async def _delete_objects(
        self, principal: Principal, conversation_id: ConversationId, keys: Sequence[str]
    ) -> int | None:
        # The rows are gone, so the objects can't be read any more; the log names those that remain.
        for _ in range(DELETE_TRIES):
            try:
                return await delete_erased_objects(self._artifacts, self._objects, principal, conversation_id, keys)
            except EverturnError as error:
                _log.error("Could not delete the objects of an erased conversation", keys=list(keys), error=str(error))
        return None

    async def _send_status_hint(self, conversation_id: ConversationId) -> None:
        for what, why in (await self._notifications.send(Hint("status", conversation_id))).items():
            _log.warning("Could not send a notification", what=what, error=why)

    async def fetch(self, principal: Principal, wanted: FetchIn) -> FetchView:
        """The state of a conversation: its row and the requested turns."""
        if not is_id(wanted.conversation_id, "conv"):
            raise NotFound()
        conversation_id = ConversationId(wanted.conversation_id)
        page = await self._turns.load_page(
            principal,
            conversation_id,
            turn_ids=_turn_ids(wanted.turn_ids),
            cursor=wanted.cursor,
            limit=wanted.limit,
        )
        sources = await self._turns.load_sources(principal, conversation_id) if wanted.materialize else None
        return await asyncio.to_thread(_build_fetched, principal, page, sources)

    async def load_turn(self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId) -> TurnOut:
        """One turn, with its queue position while it waits."""
        page = await self._turns.load_page(principal, conversation_id, turn_ids=[turn_id], limit=1)
        if not page.turns:
            raise NotFound()
        (view,) = await asyncio.to_thread(_views, principal, page)
        waiting = None
        if view.status == "queued":
            waiting = (await self._queue.load_positions([(principal, conversation_id)])).get(conversation_id)
        # Its parts are checked already; a copy by validation would cost as much as the reading.
        return TurnOut.model_construct(**dict(view), **_position_of(waiting))

    async def load_step(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, step: str
    ) -> StepDetail:
        """One step of a turn, with its full texts."""
        page = await self._turns.load_page(principal, conversation_id, turn_ids=[turn_id], limit=1)
        if not page.turns:
            raise NotFound()
        detail = await asyncio.to_thread(
            try_build_step_detail, page.turns[0], step, tenant=principal.tenant, project=principal.project
        )
        if detail is None:
            raise NotFound()
        return detail

    async def load_turn_index(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId
    ) -> TurnIndexView:
        """The parts of one turn that can be read, by ref."""
        page = await self._turns.load_page(principal, conversation_id, turn_ids=[turn_id], limit=1)
        if not page.turns:
            raise NotFound()
        return await asyncio.to_thread(build_turn_index, turn_id, page.turns[0].blocks)

    async def load_turns_with_feedback(
        self, principal: Principal, conversation_id: ConversationId, wanted: TurnsIn
    ) -> TurnsOut:
        """The turns that have feedback."""
        page = await self._turns.load_page(
            principal,
            conversation_id,
            turn_ids=_turn_ids(wanted.turn_ids),
            cursor=wanted.cursor,
            limit=MAX_TURN_IDS,
            with_feedback=True,
        )
        turns = await asyncio.to_thread(_views, principal, page)
        return TurnsOut.model_construct(conversation_id=conversation_id, turns=turns, next_cursor=page.next_cursor)


async def conversation_service(request: Request) -> ConversationService:
    """The service of this application."""
    return cast(ConversationService, request.app.state.conversations)


def _build_fetched(principal: Principal, page: TurnPage, sources: Sequence[Source] | None) -> FetchView:
    state = build_state(page, tenant=principal.tenant, project=principal.project)
    artifacts = None if sources is None else build_derived_artifacts(page, sources)
    # Its parts are checked already; a copy by validation would cost as much as the reading.
    return FetchView.model_construct(**dict(state), artifacts=artifacts)


def _views(principal: Principal, page: TurnPage) -> tuple[TurnView, ...]:
    return build_state(page, tenant=principal.tenant, project=principal.project).turns


def _turn_ids(texts: Sequence[str] | None) -> list[TurnId] | None:
    if texts is None:
        return None
    if not all(is_id(text, "turn") for text in texts):
        raise NotFound()
    return [TurnId(text) for text in dict.fromkeys(texts)]


def _position_of(waiting: WaitingTurn | None) -> dict[str, Any]:
    position = waiting.position if waiting else None
    return {"position": position.ahead, "position_more": position.more or None} if position else {}
