"""Events as SSE frames: ready bytes, made once per stream however many clients there are."""

import json
import re
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from everturn.model.leases import EventCursor
from everturn.ports.event_stream import EncodedEvent, Entry
from everturn.wire.events import (
    AnyEvent,
    ChatComplete,
    ChatError,
    ConvStatus,
    Envelope,
    encode_envelope,
    event_name,
    parse_envelope,
)

TIME_WITHIN_BYTES = 256
_TIME = re.compile(rb'"ts":"([0-9T:.Z+-]{10,40})"')
HEARTBEAT = b": ping\n\n"
UNAUTHORIZED = b": unauthorized: the credential is no longer good; opening the stream again answers 401\n\n"
"""A comment, because it says nothing about the conversation: clients learn it as the status of their next request."""
_LINE_ENDS = {text.encode(): json.dumps(text)[1:-1].encode() for text in ("\x85", "\u2028", "\u2029")}
"""No line ends of SSE nor of JSON, but of the `splitlines` with which some clients read a stream."""
_TERMINAL_TYPES = frozenset(kind.model_fields["type"].default for kind in (ChatComplete, ChatError))
_STATUS_TYPE = ConvStatus.model_fields["type"].default


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of the stream, ready to send."""

    id: EventCursor
    type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """One entry as frames; `joined` is all of them, `last` the entry's id, also when frames were dropped.

    `said_at` is when its first event was made, in seconds since 1970; None where that can't be read.
    """

    prev: EventCursor
    last: EventCursor
    ids: frozenset[EventCursor]
    frames: tuple[Frame, ...]
    joined: bytes
    said_at: float | None = None


def build_batch(entry: Entry, dropped: frozenset[EventCursor] = frozenset()) -> Batch:
    """The frames of an entry, without the dropped events."""
    frames = tuple(_build_frame(event) for event in entry.events if event.id not in dropped)
    return Batch(
        prev=entry.prev,
        last=entry.events[-1].id,
        ids=frozenset(event.id for event in entry.events),
        frames=frames,
        joined=b"".join(frame.data for frame in frames),
        said_at=_try_said_at(entry.events[0]),
    )


def _try_said_at(event: EncodedEvent) -> float | None:
    """Found by its place near the start: nothing of the event is parsed for it."""
    found = _TIME.search(event.payload, 0, TIME_WITHIN_BYTES)
    try:
        return datetime.fromisoformat(found[1].decode()).timestamp() if found else None
    except ValueError:
        return None


def _build_frame(event: EncodedEvent) -> Frame:
    return Frame(event.id, event.type, encode_frame(event.type, event.payload, cursor=str(event.id)))


def encode_frame(event_type: str, payload: bytes, *, cursor: str | None = None, retry_ms: int | None = None) -> bytes:
    """One SSE frame. `payload` is one line of JSON, in which a line break can only stand escaped.

    The id is the last line: some clients resume from an id as soon as they read it, and would lose an event that was
    cut after it.
    """
    retry = f"retry: {retry_ms}\n" if retry_ms is not None else ""
    id_line = f"id: {cursor}\n" if cursor else ""
    head = f"{retry}event: {event_name(event_type)}\ndata: "
    return head.encode() + escape_line_ends(payload) + f"\n{id_line}\n".encode()


def escape_line_ends(payload: bytes) -> bytes:
    """The same JSON without anything that somebody could take for the end of a line."""
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
    """The frame of an event that this server makes itself; `cursor` makes it one to resume from."""
    envelope = Envelope(type=data.type, ts=ts, conversation_id=conversation_id, turn_id=turn_id, data=data)
    return encode_frame(data.type, encode_envelope(envelope), cursor=cursor, retry_ms=retry_ms)


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One event of a chunk of frames, for another wire than SSE."""

    name: str
    payload: bytes


def split_frames(chunk: bytes) -> list[SentEvent]:
    """The events in a chunk that `encode_frame` made; comments are left out."""
    events: list[SentEvent] = []
    for frame in chunk.split(b"\n\n"):
        head, found, payload = frame.partition(b"\ndata: ")
        if found:
            events.append(SentEvent(head.rpartition(b"event: ")[2].decode(), payload.partition(b"\n")[0]))
    return events


def try_terminal_turn(event: EncodedEvent) -> str | None:
    """The turn that this event ends; None for all other events."""
    if event.type not in _TERMINAL_TYPES:
        return None
    try:
        return parse_envelope(event.payload).turn_id
    except ValidationError:
        # A newer worker's event is passed on as it is; only telling it from a second one is lost.
        return None


def try_last_state(entry: Entry) -> str | None:
    """The conversation's state as the last event of the entry that names one says; None where none does."""
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
    """Remembers where the last turns of a stream ended, and names the events that would end one again."""

    def __init__(self, *, max_turns: int = 64) -> None:
        self._ended: dict[str, EventCursor] = {}
        self._max_turns = max_turns

    def seconds(self, entry: Entry) -> frozenset[EventCursor]:
        """Ids of events that end a turn which an earlier event ended. The same entry twice gives the same answer."""
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
