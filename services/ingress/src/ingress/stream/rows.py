"""What a stream needs from the rows: snapshots, and the events of hints."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everturn.model.conversations import ConversationState
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, SignalId
from everturn.model.leases import EventCursor
from everturn.model.signals import Signal
from everturn.ports.clock import Clock, iso
from everturn.ports.conversations import Conversations
from everturn.ports.inbox import Inbox
from everturn.ports.limits.queue import Owned, Queue, WaitingTurn
from everturn.ports.turns import TurnPage, Turns
from everturn.timeline.conversation_state import build_state
from everturn.timeline.turn_events import build_signal_event
from everturn.timeline.view_parts import build_signal_view
from everturn.wire.events import AnyEvent, ConvStatus, ConvTitle, StreamSnapshot
from ingress.stream.frames import build_frame

SNAPSHOT_TURNS = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A conversation's state as one frame, and the event id it includes."""

    cursor: EventCursor
    frame: bytes
    queued: bool


@dataclass(frozen=True, slots=True)
class Head:
    """What the rows say now, as frames of events without id, and whether the conversation waits in the queue."""

    frame: bytes
    queued: bool


class StreamRows:
    """Reads rows for streams; every read names the principal."""

    def __init__(self, *, conversations: Conversations, turns: Turns, inbox: Inbox, queue: Queue, clock: Clock) -> None:
        self._conversations = conversations
        self._queue = queue
        self._turns = turns
        self._inbox = inbox
        self._clock = clock

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        """Raise NotFound unless the conversation is the principal's."""
        await self._conversations.load(principal, conversation_id)

    async def load_cursor(self, principal: Principal, conversation_id: ConversationId) -> EventCursor:
        """The event id that the rows include."""
        return (await self._turns.load_page(principal, conversation_id, turn_ids=[])).cursor

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        """The last turns as a frame, from which a client that reconnects can resume."""
        page = await self._turns.load_page(principal, conversation_id, limit=SNAPSHOT_TURNS)
        # A snapshot can have megabytes.
        frame = await asyncio.to_thread(self._build_snapshot, principal, conversation_id, page)
        return Snapshot(page.cursor, frame, _is_queued(page))

    def _build_snapshot(self, principal: Principal, conversation_id: ConversationId, page: TurnPage) -> bytes:
        state = build_state(page, tenant=principal.tenant, project=principal.project)
        # Also `0-0`, before the first commit: without an id a client would keep that of an event it has lost.
        return self.build_frame(conversation_id, StreamSnapshot(state=state), cursor=str(page.cursor))

    async def load_status(self, principal: Principal, conversation_id: ConversationId) -> Head:
        """The present title and state as events without id."""
        page = await self._turns.load_page(principal, conversation_id, turn_ids=[])
        return Head(await self._build_status(principal, conversation_id, page), _is_queued(page))

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> Head:
        """Title, state and the receipts of the last turn: all that hints may have told while nobody listened."""
        page = await self._turns.load_page(principal, conversation_id, limit=1)
        status = await self._build_status(principal, conversation_id, page)
        receipts = await asyncio.to_thread(self._build_receipts, principal, conversation_id, page)
        return Head(status + receipts, _is_queued(page))

    def _build_receipts(self, principal: Principal, conversation_id: ConversationId, page: TurnPage) -> bytes:
        signals = [signal for record in page.turns for signal in record.signals]
        return b"".join(self._build_receipt(principal, conversation_id, signal) for signal in signals)

    def _build_receipt(self, principal: Principal, conversation_id: ConversationId, signal: Signal) -> bytes:
        view = build_signal_view(signal, tenant=principal.tenant, project=principal.project)
        return self.build_frame(conversation_id, build_signal_event(view), turn_id=signal.turn_id)

    async def load_positions(self, asked: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        """Where these conversations stand in the queue, those that wait in it."""
        return await self._queue.load_positions(asked)

    def build_waiting(self, conversation_id: ConversationId, waiting: WaitingTurn) -> bytes:
        """A position as an event without id."""
        position = waiting.position
        status = ConvStatus(
            state="queued", turn_id=waiting.turn_id, position=position.ahead, position_more=position.more or None
        )
        return self.build_frame(conversation_id, status)

    async def load_signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> bytes:
        """A signal's present receipt as an event without id."""
        signal = await self._inbox.load_signal(principal, conversation_id, signal_id)
        return self._build_receipt(principal, conversation_id, signal)

    def build_frame(
        self,
        conversation_id: ConversationId,
        data: AnyEvent,
        *,
        turn_id: str | None = None,
        cursor: str | None = None,
        retry_ms: int | None = None,
    ) -> bytes:
        """A frame of this server's own, as of now."""
        ts = iso(self._clock.now())
        return build_frame(
            data, conversation_id=conversation_id, ts=ts, turn_id=turn_id, cursor=cursor, retry_ms=retry_ms
        )

    async def _build_status(self, principal: Principal, conversation_id: ConversationId, page: TurnPage) -> bytes:
        conversation = page.conversation
        waiting = None
        if _is_queued(page):
            waiting = (await self._queue.load_positions([(principal, conversation_id)])).get(conversation_id)
        if waiting is not None:
            status = self.build_waiting(conversation_id, waiting)
        else:
            status = self.build_frame(
                conversation_id, ConvStatus(state=conversation.state.value, turn_id=page.open_turn_id)
            )
        if not conversation.title:
            return status
        return self.build_frame(conversation_id, ConvTitle(title=conversation.title)) + status


def _is_queued(page: TurnPage) -> bool:
    return page.conversation.state is ConversationState.QUEUED
