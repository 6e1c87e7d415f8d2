"""Events as SSE frames, built once per stream for all its clients, and the position of one client in the stream."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Literal

from pydantic import ValidationError

from everturn.events.cursor import EventCursor
from everturn.events.model import (
    TERMINAL_TYPES,
    AnyEvent,
    ConvStatus,
    Envelope,
    encode_envelope,
    event_name,
    parse_envelope,
)
from everturn.events.stream import EncodedEvent, Entry

TIME_WITHIN_BYTES = 256
_TIME = re.compile(rb'"ts":"([0-9T:.Z+-]{10,40})"')
HEARTBEAT = b": ping\n\n"
UNAUTHORIZED = b": unauthorized: the credential is no longer valid; reconnecting returns 401\n\n"
"""An SSE comment, because it is not about the conversation: clients learn it from the status of their next request."""
_LINE_ENDS = {text.encode(): json.dumps(text)[1:-1].encode() for text in ("\x85", "\u2028", "\u2029")}
"""These are not line ends in SSE or JSON, but in Python's `splitlines`, which some clients use to read a stream."""
_STATUS_TYPE = ConvStatus.model_fields["type"].default

REWIND = "chat.rewind"
PIECE_BYTES = 32_768
"""The largest piece of live frames that is handed out at once, unless one entry is larger; a larger piece also counts
as this many bytes. The connection holds a piece until its client has received it."""

Loss = Literal["expired_cursor", "slow", "gap", "stream_lost", "outage"]
"""Why a client needs a snapshot: its cursor is older than the stream, it reads too slowly, entries are missing, the
stream is gone from Redis, or Redis does not answer."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of the stream, ready to send."""

    id: EventCursor
    type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """One entry as frames. `joined` is all of them joined; `last` is the entry's id, even when frames were dropped.

    `created_at` is the creation time of its first event, in seconds since 1970; None where that can't be read.
    """

    prev: EventCursor
    last: EventCursor
    ids: frozenset[EventCursor]
    frames: tuple[Frame, ...]
    joined: bytes
    created_at: float | None = None


def build_batch(entry: Entry, dropped: frozenset[EventCursor] = frozenset()) -> Batch:
    """Build the frames of an entry, without the dropped events."""
    frames = tuple(_build_frame(event) for event in entry.events if event.id not in dropped)
    return Batch(
        prev=entry.prev,
        last=entry.events[-1].id,
        ids=frozenset(event.id for event in entry.events),
        frames=frames,
        joined=b"".join(frame.data for frame in frames),
        created_at=_try_read_created_at(entry.events[0]),
    )


def _try_read_created_at(event: EncodedEvent) -> float | None:
    """Search for the time near the start of the payload, to avoid parsing the event."""
    found = _TIME.search(event.payload, 0, TIME_WITHIN_BYTES)
    try:
        return datetime.fromisoformat(found[1].decode()).timestamp() if found else None
    except ValueError:
        return None


def _build_frame(event: EncodedEvent) -> Frame:
    return Frame(event.id, event.type, encode_frame(event.type, event.payload, cursor=str(event.id)))


def encode_frame(event_type: str, payload: bytes, *, cursor: str | None = None, retry_ms: int | None = None) -> bytes:
    """Build one SSE frame. `payload` is one line of JSON, in which line breaks are always escaped.

    The id is the last line: some clients resume from an id as soon as they read it. With an id before the data, they
    would lose an event that was cut off after its id.
    """
    retry = f"retry: {retry_ms}\n" if retry_ms is not None else ""
    id_line = f"id: {cursor}\n" if cursor else ""
    head = f"{retry}event: {event_name(event_type)}\ndata: "
    return head.encode() + escape_line_ends(payload) + f"\n{id_line}\n".encode()


def escape_line_ends(payload: bytes) -> bytes:
    """Return the same JSON without any character that a client could treat as a line end."""
    for end, escaped in _LINE_ENDS.items():
        payload = payload.replace(end, escaped)
    return payload


def build_frame(
    data: AnyEvent,
    *,
    conversation_id: str,
    ts: str,
    turn_id: str | None = None,
    cursor: str | None = None,
    retry_ms: int | None = None,
) -> bytes:
    """Build the frame of an event that this server creates itself; with `cursor` a client can resume from it."""
    envelope = Envelope(type=data.type, ts=ts, conversation_id=conversation_id, turn_id=turn_id, data=data)
    return encode_frame(data.type, encode_envelope(envelope), cursor=cursor, retry_ms=retry_ms)


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One event of a chunk of frames, for transports other than SSE."""

    name: str
    payload: bytes


def split_frames(chunk: bytes) -> list[SentEvent]:
    """Return the events in a chunk that `encode_frame` built, without comments."""
    events: list[SentEvent] = []
    for frame in chunk.split(b"\n\n"):
        head, found, payload = frame.partition(b"\ndata: ")
        if found:
            events.append(SentEvent(head.rpartition(b"event: ")[2].decode(), payload.partition(b"\n")[0]))
    return events


def try_terminal_turn(event: EncodedEvent) -> str | None:
    """The id of the turn that this event ends; None for all other events."""
    if event.type not in TERMINAL_TYPES:
        return None
    try:
        return parse_envelope(event.payload).turn_id
    except ValidationError:
        # An event of a newer worker passes through unchanged; only the detection of a duplicate is lost.
        return None


def try_last_state(entry: Entry) -> str | None:
    """The conversation's state according to the last status event of the entry; None if there is none."""
    for event in reversed(entry.events):
        if event.type != _STATUS_TYPE:
            continue
        try:
            data = parse_envelope(event.payload).data
        except ValidationError:
            return None
        return data.state if isinstance(data, ConvStatus) else None
    return None


class TerminalFilter:
    """Remembers where the last turns of a stream ended, and finds later events that would end the same turn again."""

    def __init__(self, *, max_turns: int = 64) -> None:
        self._ended: dict[str, EventCursor] = {}
        self._max_turns = max_turns

    def find_repeated_ends(self, entry: Entry) -> frozenset[EventCursor]:
        """Ids of events that end a turn which an earlier event already ended. Idempotent for the same entry."""
        dropped: set[EventCursor] = set()
        for event in entry.events:
            turn_id = try_terminal_turn(event)
            if turn_id is None:
                continue
            first = self._ended.get(turn_id)
            if first is None or event.id < first:
                self._ended[turn_id] = event.id
            elif event.id > first:
                dropped.add(event.id)
        while len(self._ended) > self._max_turns:
            self._ended.pop(next(iter(self._ended)))
        return frozenset(dropped)


class Phase(Enum):
    """LOST needs a snapshot. BEHIND reads the stream up to its end. LIVE receives entries as they arrive."""

    LOST = auto()
    BEHIND = auto()
    LIVE = auto()


class EntryOrder(Enum):
    """How an entry relates to a client's position: already known, the next one, or after a gap."""

    KNOWN = auto()
    NEXT = auto()
    AFTER_GAP = auto()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Frames, the client's position after them, and the creation time of their first event if it arrived live."""

    frames: bytes
    at: EventCursor
    created_at: float | None


class ClientCursor:
    """A client's position in the stream, and the frames that wait for it. It does no I/O: entries and hints go in,
    joined frames come out.

    The frames handed out are always a gapless continuation; otherwise `phase` is LOST and a snapshot must follow.
    Waiting live frames plus the piece that the connection may still hold are at most `max_bytes`, or one entry. Frames
    read to catch up are bounded by their reader and don't make a client count as slow.
    """

    def __init__(self, start: EventCursor | None, *, max_bytes: int, piece_bytes: int = PIECE_BYTES) -> None:
        """Without `start` the client begins with a snapshot."""
        self.phase = Phase.LOST if start is None else Phase.BEHIND
        self.taken = start
        """The last id handed out; None before the first."""
        self.loss: Loss = "gap"
        """Why the last snapshot was necessary."""
        self.stale_hints = start is not None
        """The client may have missed hints; the row must be read once the client is live."""
        self.taken_created_at: float | None = None
        """The creation time of the oldest live event in the last piece handed out, until it is released."""
        self._at = start or EventCursor(0, 0)
        self._fresh = False
        self._max_bytes = max_bytes
        self._piece_bytes = piece_bytes
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._read_bytes = 0
        self._in_hand_bytes = 0

    @property
    def at(self) -> EventCursor:
        return self._at

    @property
    def fresh(self) -> bool:
        """Whether `at` comes from a snapshot that no entry has followed."""
        return self._fresh

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def rebase(self, cursor: EventCursor, frame: bytes) -> None:
        """Restart from a snapshot, whose frame replaces the client's state."""
        self._clear()
        self._at = cursor
        self._put(frame)
        self._read_bytes = self._waiting_bytes
        self._fresh = True
        self.phase = Phase.BEHIND

    def feed(self, batch: Batch) -> None:
        """Add an entry that was read while BEHIND."""
        if self.phase is Phase.BEHIND:
            self._accept(batch)
            self._read_bytes = self._waiting_bytes

    def offer(self, batch: Batch) -> None:
        """Add an entry that just arrived. A client that is not live reads it later from the stream."""
        if self.phase is not Phase.LIVE:
            return
        if self._live_bytes and self._live_bytes + self._in_hand_bytes + len(batch.joined) > self._max_bytes:
            self.lose("slow")
            return
        self._accept(batch, created_at=batch.created_at)

    def offer_hint(self, frame: bytes) -> None:
        """Add an event without id. A client that is not live gets the newest state once it is."""
        if self.phase is not Phase.LIVE:
            self.stale_hints = True
        elif self._live_bytes + self._in_hand_bytes + len(frame) > self._max_bytes:
            self.lose("slow")
        else:
            self._put(frame)

    def reach_end(self, end: EventCursor, *, found_any: bool) -> None:
        """Record that the stream was read to its end; `end` is the last id that the reader has seen.

        If nothing was found although `end` is ahead, the stream lost what this client needs. After a fresh
        snapshot the client becomes live anyway, because nothing newer is available.
        """
        if self.phase is not Phase.BEHIND:
            return
        if self._at >= end or (self._fresh and not found_any):
            self.phase = Phase.LIVE
        elif not found_any:
            self.lose("stream_lost")

    def lose(self, reason: Loss) -> None:
        """Drop the waiting frames; a snapshot must follow."""
        self.loss = reason
        self._clear()
        self._at = self.taken or EventCursor(0, 0)
        self._fresh = False
        self.phase = Phase.LOST
        self.stale_hints = False

    def take(self) -> bytes:
        """Return waiting frames, joined: everything read to catch up, otherwise as many as fit into a piece, but at
        least one."""
        self._in_hand_bytes, self.taken_created_at = 0, None
        count, size = 0, 0
        for each in self._waiting:
            if size >= max(1, self._read_bytes) and size + len(each.frames) > self._piece_bytes:
                break
            count, size = count + 1, size + len(each.frames)
        if not count:
            return b""
        piece = self._waiting[:count]
        del self._waiting[:count]
        self._waiting_bytes -= size
        self._read_bytes = max(0, self._read_bytes - size)
        self._in_hand_bytes = min(size, self._piece_bytes)
        self.taken = piece[-1].at
        self.taken_created_at = next((each.created_at for each in piece if each.created_at is not None), None)
        return piece[0].frames if count == 1 else b"".join(each.frames for each in piece)

    def release_piece(self) -> None:
        """Record that the connection no longer holds the last piece."""
        self._in_hand_bytes, self.taken_created_at = 0, None

    def classify(self, batch: Batch) -> EntryOrder:
        """How an entry relates to this client's position."""
        if batch.last <= self._at:
            return EntryOrder.KNOWN
        if batch.prev == self._at or self._at in batch.ids:
            return EntryOrder.NEXT
        # Two more kinds of entries may follow a fresh snapshot. One whose `prev` the snapshot covers: nothing was
        # published in between. And one that begins with a rewind: it contains everything committed, and the rest was
        # never shown.
        if self._fresh and (batch.prev < self._at or self._begins_with_rewind(batch)):
            return EntryOrder.NEXT
        return EntryOrder.AFTER_GAP

    def _begins_with_rewind(self, batch: Batch) -> bool:
        above = [frame for frame in batch.frames if frame.id > self._at]
        return bool(above) and above[0].type == REWIND

    @property
    def _live_bytes(self) -> int:
        """The bytes of waiting frames that arrived live."""
        return self._waiting_bytes - self._read_bytes

    def _accept(self, batch: Batch, created_at: float | None = None) -> None:
        match self.classify(batch):
            case EntryOrder.KNOWN:
                pass
            case EntryOrder.NEXT:
                above = self._above(batch)
                self._at = batch.last
                self._put(above, created_at)
                self._fresh = False
            case EntryOrder.AFTER_GAP:
                self.lose("gap")

    def _above(self, batch: Batch) -> bytes:
        if not batch.frames or batch.frames[0].id > self._at:
            return batch.joined
        return b"".join(frame.data for frame in batch.frames if frame.id > self._at)

    def _put(self, frames: bytes, created_at: float | None = None) -> None:
        if frames:
            self._waiting.append(_Waiting(frames, self._at, created_at))
            self._waiting_bytes += len(frames)

    def _clear(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self._read_bytes = 0
