"""The rows that a stream reads: snapshots and the events of hints. Concurrent readers share a read."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from everturn.conversations.model import Conversations, ConversationState
from everturn.core.clock import Clock, iso
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, SignalId
from everturn.events.cursor import EventCursor
from everturn.events.model import AnyEvent, ConvStatus, ConvTitle, StreamSnapshot
from everturn.events.turn_view import TurnPage, build_signal_event, build_signal_view, build_state
from everturn.queue.model import Owned, Queue, WaitingTurn
from everturn.timeline.turns import Signal
from everturn.turns.inbox import Inbox
from everturn.turns.ports import ConversationStatus, Turns
from ingress.stream.frames import build_frame

SNAPSHOT_TURNS = 20
SNAPSHOT_BYTES = 1024 * 1024
"""Total stored size of the turns of a snapshot, unless the newest alone is larger. It is less than a page of REST has,
because a client can do nothing before it has read its snapshot. `next_cursor` leads to older turns over REST."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A conversation's state as one frame, and the last event id it includes."""

    cursor: EventCursor
    frame: bytes
    queued: bool


@dataclass(frozen=True, slots=True)
class Position:
    """The last event id that the rows include, and whether a worker runs a turn, so that more may follow."""

    cursor: EventCursor
    is_running: bool


@dataclass(frozen=True, slots=True)
class Head:
    """The current rows as frames of events without id, and whether the conversation is queued."""

    frame: bytes
    queued: bool


class StreamRows:
    """Reads rows for streams; every read is scoped to a principal."""

    def __init__(self, *, conversations: Conversations, turns: Turns, inbox: Inbox, queue: Queue, clock: Clock) -> None:
        self._conversations = conversations
        self._queue = queue
        self._turns = turns
        self._inbox = inbox
        self._clock = clock

    async def check_owner(self, principal: Principal, conversation_id: ConversationId) -> None:
        """Raise NotFound unless the conversation belongs to the principal."""
        await self._conversations.load(principal, conversation_id)

    async def load_position(self, principal: Principal, conversation_id: ConversationId) -> Position:
        """How far the rows are."""
        page = await self._turns.load_page(principal, conversation_id, turn_ids=[])
        return Position(page.cursor, is_running=page.conversation.state is ConversationState.RUNNING)

    async def load_snapshot(self, principal: Principal, conversation_id: ConversationId) -> Snapshot:
        """The last turns as a frame, from which a client that reconnects can resume."""
        page = await self._turns.load_page(principal, conversation_id, limit=SNAPSHOT_TURNS, max_bytes=SNAPSHOT_BYTES)
        # Building a snapshot of megabytes would block the event loop.
        frame = await asyncio.to_thread(self._build_snapshot, principal, conversation_id, page)
        return Snapshot(page.cursor, frame, _is_queued(page))

    def _build_snapshot(self, principal: Principal, conversation_id: ConversationId, page: TurnPage) -> bytes:
        state = build_state(page, tenant=principal.tenant, project=principal.project)
        # The id is also set to `0-0`, before the first commit: without one a client would keep the id of an event it
        # has lost.
        return self.build_frame(conversation_id, StreamSnapshot(state=state), cursor=str(page.cursor))

    async def load_status(self, principal: Principal, conversation_id: ConversationId) -> Head:
        """The current title and state as events without id."""
        return self._build_status(await self._turns.load_status(principal, conversation_id))

    async def load_head(self, principal: Principal, conversation_id: ConversationId) -> Head:
        """Title, state and the receipts of the last turn: everything that missed hints may have announced."""
        page = await self._turns.load_page(principal, conversation_id, limit=1)
        waiting = None
        if _is_queued(page):
            waiting = (await self._queue.load_positions([(principal, conversation_id)])).get(conversation_id)
        head = self._build_status(ConversationStatus(page.conversation, page.open_turn_id, waiting))
        receipts = await asyncio.to_thread(self._build_receipts, principal, conversation_id, page)
        return Head(head.frame + receipts, head.queued)

    def _build_receipts(self, principal: Principal, conversation_id: ConversationId, page: TurnPage) -> bytes:
        signals = [signal for record in page.turns for signal in record.signals]
        return b"".join(self._build_receipt(principal, conversation_id, signal) for signal in signals)

    def _build_receipt(self, principal: Principal, conversation_id: ConversationId, signal: Signal) -> bytes:
        view = build_signal_view(signal, tenant=principal.tenant, project=principal.project)
        return self.build_frame(conversation_id, build_signal_event(view), turn_id=signal.turn_id)

    async def load_positions(self, conversations: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        """The queue positions of those of these conversations that are queued."""
        return await self._queue.load_positions(conversations)

    def build_waiting(self, conversation_id: ConversationId, waiting: WaitingTurn) -> bytes:
        """Build the event, without id, of a queue position."""
        position = waiting.position
        status = ConvStatus(
            state="queued", turn_id=waiting.turn_id, position=position.ahead, position_more=position.more or None
        )
        return self.build_frame(conversation_id, status)

    async def load_signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> bytes:
        """A signal's current receipt as an event without id."""
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
        """Build a frame of this server's own, with the current time."""
        ts = iso(self._clock.now())
        return build_frame(
            data, conversation_id=conversation_id, ts=ts, turn_id=turn_id, cursor=cursor, retry_ms=retry_ms
        )

    def _build_status(self, status: ConversationStatus) -> Head:
        conversation, waiting = status.conversation, status.waiting
        if waiting is not None:
            frame = self.build_waiting(conversation.id, waiting)
        else:
            state = ConvStatus(state=conversation.state.value, turn_id=status.open_turn_id)
            frame = self.build_frame(conversation.id, state)
        if conversation.title:
            frame = self.build_frame(conversation.id, ConvTitle(title=conversation.title)) + frame
        return Head(frame, conversation.state is ConversationState.QUEUED)


def _is_queued(page: TurnPage) -> bool:
    return page.conversation.state is ConversationState.QUEUED


class SharedRead(Generic[Value]):
    """At most one read runs at a time; readers that arrive while it runs share the next one."""

    def __init__(self, read: Callable[[], Awaitable[Value]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._begun = 0
        self._kept: tuple[int, Value] | None = None
        self._waiting = 0

    async def get(self) -> Value:
        """Return the value. An error of the read goes to the task that ran it, and the next reader retries."""
        asked_at = self._begun
        self._waiting += 1
        try:
            async with self._lock:
                return await self._get_locked(asked_at)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._kept = None

    async def _get_locked(self, asked_at: int) -> Value:
        if self._kept and self._kept[0] > asked_at:
            return self._kept[1]
        self._begun += 1
        number = self._begun
        value = await self._read()
        self._kept = (number, value)
        return value
