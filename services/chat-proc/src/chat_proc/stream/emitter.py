"""The live event stream of one leased turn: numbers its events, and a task publishes them in batches.

Pieces of one text that wait for the same entry become one event, with the id of the first.

Publishing never fails or stalls a turn. An entry whose reply was lost is sent again unchanged, and the stream accepts
it once. If events were lost, clients get the committed state again (a rewind) and then what was written since.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog

from everturn.core.clock import Clock, iso
from everturn.core.errors import StaleFence, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.loops import guarded
from everturn.core.metrics import EVENTS_PUBLISHED, REWINDS
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.model import (
    AnyEvent,
    ChatApproval,
    ChatCitations,
    ChatDelta,
    ChatFiles,
    ChatFollowups,
    ChatPhase,
    ChatPlan,
    ChatRewind,
    ChatSignal,
    ChatStart,
    ChatStep,
    ChatTool,
    ConvStatus,
    ConvTitle,
    Envelope,
    encode_envelope,
)
from everturn.events.stream import EncodedEvent, Entry, EventsLost, EventWriter
from everturn.events.views import TurnView

_log = structlog.get_logger(__name__)

MAX_MERGED_CHARS = 16_384
"""A longer text is continued in another event."""

MAX_PENDING_EVENTS = 10_000
"""Above this number of unsent events a rewind replaces the buffer: older pieces are useless to a client."""
MAX_ENTRY_BYTES = 256 * 1024
"""Size of one entry in Redis; a larger single event is sent in an entry of its own."""
MAX_BACKOFF_S = 2.0
LINGER_S = 0.03
"""How long the start of a turn or of a model call, the end of its thinking or of a text, or a status waits for an event
that goes into the same entry. Each entry costs CPU in the worker, Redis and the ingress, however little it carries."""
TEXT_GAP_S = 0.01
"""How long an entry waits after the one before it if it only adds text. That is less than a frame of a screen, so only
text that models write faster than people can see gathers meanwhile."""

_SHOWN_BY_REWINDS = (ChatApproval, ChatCitations, ChatFiles, ChatFollowups, ChatPlan, ChatSignal, ChatStep)
"""Events about the state of a turn, once that state is committed."""


class UnsentEvent:
    """An event that has its id and is not encoded yet, so that the text that follows it can join it."""

    __slots__ = ("_address", "_chars", "_completed", "_data", "_encoded", "_more", "_round", "id", "is_sealed")

    def __init__(self, id: EventCursor, data: AnyEvent, round_number: int | None, address: Mapping[str, str]) -> None:
        self.id = id
        self.is_sealed = not isinstance(data, ChatDelta)
        """Nothing joins a sealed event."""
        self._data = data
        self._round = round_number
        self._address = address
        self._more: list[str] = []
        self._chars = len(data.text) if isinstance(data, ChatDelta) else 0
        self._completed = isinstance(data, ChatDelta) and data.completed
        self._encoded: EncodedEvent | None = None

    def try_join(self, data: AnyEvent, round_number: int | None) -> bool:
        """Take in the next piece of the same text; returns False if it needs an event of its own."""
        begun = self._data
        if self.is_sealed or not isinstance(data, ChatDelta) or not isinstance(begun, ChatDelta):
            return False
        if (self._round, begun.channel, begun.instance) != (round_number, data.channel, data.instance):
            return False
        if self._completed or self._chars + len(data.text) > MAX_MERGED_CHARS:
            return False
        self._more.append(data.text)
        self._chars += len(data.text)
        self._completed = data.completed
        return True

    def encode(self) -> EncodedEvent:
        """The event as it is sent to clients. Once encoded, nothing can join it."""
        if self._encoded is None:
            self.is_sealed = True
            self._encoded = self._encode()
        return self._encoded

    def _encode(self) -> EncodedEvent:
        data = self._data
        if self._more and isinstance(data, ChatDelta):
            text = "".join((data.text, *self._more))
            data = data.model_copy(update={"text": text, "completed": self._completed})
        envelope = Envelope(id=str(self.id), type=data.type, round=self._round, data=data, **self._address)
        return EncodedEvent(self.id, data.type, encode_envelope(envelope))


class EventNumbering:
    """Ids of the events of one turn under one lease.

    Gives each event the next id, and never an id twice. `after` may have an older fence.
    """

    def __init__(
        self, clock: Clock, *, conversation_id: ConversationId, turn_id: TurnId, fence: int, after: EventCursor
    ) -> None:
        self.conversation_id = conversation_id
        self._clock = clock
        self._turn_id = turn_id
        self._fence = fence
        self._cursor = after
        self.last_at_s = clock.monotonic()
        """When the turn last sent an event, in seconds of the monotonic clock; notices of waiting don't count."""

    @property
    def cursor(self) -> EventCursor:
        """The last id issued."""
        return self._cursor

    def begin(self, data: AnyEvent, round_number: int | None = None) -> UnsentEvent:
        """Give the event the next id."""
        self.note(data)
        # An earlier numbering may have issued ids under the same fence.
        n = self._cursor.n if self._cursor.fence == self._fence else 0
        self._cursor = EventCursor(self._fence, n + 1)
        address = {"ts": iso(self._clock.now()), "conversation_id": self.conversation_id, "turn_id": self._turn_id}
        return UnsentEvent(self._cursor, data, round_number, address)

    def note(self, data: AnyEvent) -> None:
        """Record that the turn has sent this."""
        if not isinstance(data, ChatPhase) or data.phase == "model_replying":
            self.last_at_s = self._clock.monotonic()


@dataclass(frozen=True, slots=True)
class UncommittedEvent:
    """An event and its round."""

    data: AnyEvent
    round: int | None


class UncommittedEvents:
    """The events of a turn that no commit covers, with text merged, so that they can be sent again after a rewind.

    Owned by one emitter. Text pieces of the same channel instance are merged into one with the index of the first. Of
    each kind of event about the conversation the newest is kept: a rewind shows only the turn.
    """

    def __init__(self) -> None:
        self._pieces: dict[tuple[int | None, object, object], list[tuple[EventCursor, AnyEvent]]] = {}
        """Keys begin with the round."""

    def add(self, event_id: EventCursor, data: AnyEvent, round_number: int | None) -> None:
        match data:
            case ChatPhase(phase="model_called" | "model_thought" | "model_fallback"):
                key = round_number, data.type, event_id
            case ChatPhase() | ChatTool():  # a step, or the next phase, is sent instead
                return
            case ChatStart():  # a rewind shows it
                return
            case ChatDelta(channel=channel, instance=instance):
                key = round_number, channel, instance
            case ConvStatus() | ConvTitle():
                key = round_number, data.type, ""
                self._pieces.pop(key, None)
            case _:
                key = round_number, data.type, event_id
        self._pieces.setdefault(key, []).append((event_id, data))

    def forget(self, up_to: EventCursor, *, published: EventCursor = ORIGIN) -> None:
        """Forget the turn's events up to this id, because a commit covers them, or because they are void; and events
        about the conversation up to `published`."""
        for key, pieces in list(self._pieces.items()):
            is_conversation = isinstance(pieces[0][1], ConvStatus | ConvTitle)
            limit = published if is_conversation else up_to
            left = [piece for piece in pieces if piece[0] > limit]
            if left:
                self._pieces[key] = left
            else:
                del self._pieces[key]

    def renumber(self, event_id: EventCursor, event: UncommittedEvent) -> None:
        """Note the new id of an event that is sent again: one about the conversation is not published until then. The
        turn's events keep their ids, because a commit that is being written can cover them."""
        if isinstance(event.data, ConvStatus | ConvTitle):
            self._pieces[event.round, event.data.type, ""] = [(event_id, event.data)]

    def merged(self) -> tuple[UncommittedEvent, ...]:
        """The events to send again, in the order in which each began."""
        return tuple(UncommittedEvent(_merge([data for _, data in each]), key[0]) for key, each in self._pieces.items())


def _merge(pieces: list[AnyEvent]) -> AnyEvent:
    first, last = pieces[0], pieces[-1]
    if not isinstance(first, ChatDelta) or not isinstance(last, ChatDelta):
        return first
    text = "".join(piece.text for piece in pieces if isinstance(piece, ChatDelta))
    return first.model_copy(update={"text": text, "completed": last.completed})


class Emitter:
    """Owned by one turn runner; `run` is its publishing task. Every task of the turn may `emit` at any time, also while
    a commit is being written: the commit covers the events up to its cursor."""

    def __init__(self, writer: EventWriter, numbering: EventNumbering, owner: Principal | None = None) -> None:
        self._writer = writer
        self._owner = owner
        self._numbering = numbering
        self._conversation_id = numbering.conversation_id
        self._published = numbering.cursor
        self._unchecked = True
        self._pending: list[UnsentEvent] = []
        self._sending: Entry | None = None
        self._uncommitted = UncommittedEvents()
        self._view: Callable[[], Awaitable[TurnView]] | None = None
        self._commits = 0
        self._needs_rewind = False
        self._closed = False
        self._wake = asyncio.Event()
        self._timer: asyncio.Handle | None = None
        """Wakes `run` at `_rings_at_s` for the events that wait for others."""
        self._rings_at_s = 0.0
        self._text_from_s = 0.0
        """When the next entry with text may begin, in seconds of the loop's time."""
        self._drained = asyncio.Event()
        self._drained.set()
        self.stale = asyncio.Event()
        """Set if a newer fence has written to the stream: this worker has lost the conversation."""

    def seal(self) -> EventCursor:
        """Add no more text to the events that were emitted, and return the last id issued. A commit stores it, because
        it covers everything emitted before, and nothing after."""
        if self._pending:
            self._pending[-1].is_sealed = True
        return self._numbering.cursor

    def show_committed(self, view: Callable[[], Awaitable[TurnView]]) -> None:
        """Set the function that builds the committed state of the turn as it is when it is called; a rewind shows
        it."""
        self._view = view

    def emit(self, data: AnyEvent, round_number: int | None = None, *, is_committed: bool = False) -> None:
        """Give the event its id and send it soon. If it reports a change of the turn's state that `is_committed`, it is
        not sent again after a rewind, which shows the change."""
        event_id = self._enqueue(data, round_number)
        if not (is_committed and isinstance(data, _SHOWN_BY_REWINDS)):
            self._uncommitted.add(event_id, data, round_number)
        if len(self._pending) > MAX_PENDING_EVENTS:
            self._request_rewind("too many unsent")

    def shown_answer(self) -> str:
        """The answer text that clients have seen since the last commit."""
        events = (each.data for each in self._uncommitted.merged())
        return "".join(data.text for data in events if isinstance(data, ChatDelta) and data.channel == "answer")

    def mark_committed(self, cursor: EventCursor) -> None:
        """Mark the events up to this id as covered by a commit."""
        self._commits += 1
        self._uncommitted.forget(cursor)

    def rewind(self) -> None:
        """Replace the clients' view of the turn with its committed state; events since the last commit are void."""
        self._uncommitted.forget(self._numbering.cursor, published=self._published)
        self._needs_rewind = True
        self._notify()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all events are published; returns False on a timeout or if the lease is lost."""
        if self.stale.is_set():
            return False
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._drained.wait()
        except TimeoutError:
            return False
        return not self.stale.is_set()

    def close(self) -> None:
        """Emit nothing more; `run` returns when pending events are sent or given up."""
        self._closed = True
        self._notify()

    def abandon(self) -> None:
        """Publish nothing more, because the lease is lost."""
        self.stale.set()
        self._notify()

    async def run(self) -> None:
        """Publish until closed. Events that arrive while one entry is being sent form the next."""
        backoff_s = 0.05
        while not self.stale.is_set():
            if not self._has_work():
                self._drained.set()
                if self._closed:
                    return
            await self._wake.wait()
            self._wake.clear()
            if self.stale.is_set() or not self._has_work():
                continue
            is_published = False
            try:
                with guarded("emitter", passing=(StaleFence, EventsLost, Unavailable)):
                    await self._publish_gathered()
                    is_published = True
            except StaleFence:
                self.stale.set()
            except EventsLost as error:
                self._request_rewind(str(error))
            except Unavailable:
                if self._closed:
                    return
            else:
                if not is_published:  # a defect, which is logged
                    self._request_rewind("an event could not be encoded or sent")
                    if self._closed:
                        return
            if is_published:
                backoff_s = 0.05
            elif not self.stale.is_set():
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
                self._wake.set()
        self._drained.set()

    def _has_work(self) -> bool:
        return self._needs_rewind or bool(self._pending) or self._sending is not None

    async def _publish_gathered(self) -> None:
        while self._needs_rewind:  # again if another one was requested meanwhile
            await self._prepare_rewind()
        if self._sending is None:
            if not self._pending:
                return
            self._sending = Entry(self._published, self._next_batch())
            self._text_from_s = asyncio.get_running_loop().time() + TEXT_GAP_S
        if self._pending:  # there is more than fits into one entry, or this one is sent again
            self._wake.set()
        entry = self._sending
        after = None if self._unchecked else entry.prev
        await self._writer.publish(self._conversation_id, entry, after=after, owner=self._owner)
        self._published, self._unchecked = entry.events[-1].id, False
        self._sending = None
        EVENTS_PUBLISHED.inc(len(entry.events))

    async def _prepare_rewind(self) -> None:
        last = await self._writer.load_last(self._conversation_id)
        view = await self._build_view()
        self._published = max(last, self._published) if last else self._published
        self._unchecked = True
        self._needs_rewind = False
        self._pending.clear()
        self._sending = None
        if view is not None:
            REWINDS.inc()
            self._enqueue(ChatRewind(turn=view), None)
        for event in self._uncommitted.merged():
            event_id = self._enqueue(event.data, event.round)
            self._uncommitted.renumber(event_id, event)
        if view is not None:
            # The state of a turn with many large messages takes a moment.
            await asyncio.to_thread(self._pending[0].encode)

    async def _build_view(self) -> TurnView | None:
        """The committed state. A commit while it is built makes it outdated: the events since are not those after
        it."""
        while self._view is not None:
            commits = self._commits
            view = await self._view()
            if commits == self._commits:
                return view
        return None

    def _next_batch(self) -> tuple[EncodedEvent, ...]:
        batch: list[EncodedEvent] = []
        size = 0
        for event in self._pending:
            encoded = event.encode()
            size += len(encoded.payload)
            if batch and size > MAX_ENTRY_BYTES:
                break
            batch.append(encoded)
        del self._pending[: len(batch)]
        return tuple(batch)

    def _request_rewind(self, why: str) -> None:
        # An unacknowledged entry may have arrived: the rewind first loads the end of the stream.
        _log.warning(
            "Lost events; the next publish starts with a rewind", conversation_id=self._conversation_id, why=why
        )
        self._needs_rewind = True
        self._pending.clear()

    def _enqueue(self, data: AnyEvent, round_number: int | None) -> EventCursor:
        if self._pending and self._pending[-1].try_join(data, round_number):
            self._numbering.note(data)
        else:
            self._pending.append(self._numbering.begin(data, round_number))
        self._drained.clear()
        now_s = asyncio.get_running_loop().time()
        self._wake_at(
            now_s + LINGER_S if _can_wait(data) else self._text_from_s if isinstance(data, ChatDelta) else 0.0
        )
        return self._pending[-1].id

    def _notify(self) -> None:
        self._drained.clear()
        self._wake.set()

    def _wake_at(self, at_s: float) -> None:
        loop = asyncio.get_running_loop()
        if at_s <= loop.time():
            self._wake.set()
        elif self._timer is None or at_s < self._rings_at_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._rings_at_s = loop.call_at(at_s, self._ring), at_s

    def _ring(self) -> None:
        self._timer = None
        self._wake.set()


def _can_wait(data: AnyEvent) -> bool:
    match data:
        case ChatStart() | ConvStatus() | ChatPhase(phase="model_called" | "model_thought") | ChatDelta(text=""):
            return True
        case _:
            return False
