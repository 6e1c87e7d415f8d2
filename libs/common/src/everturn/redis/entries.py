"""How an entry of a conversation's event stream stands in Redis: the id before it, a head with the size of each event,
and the events' encoded bytes one after the other."""

from collections.abc import Mapping

from everturn.model.ids import ConversationId
from everturn.model.leases import EventCursor, try_parse_cursor
from everturn.model.open_values import report_unknown
from everturn.ports.event_stream import EncodedEvent, Entry

Fields = Mapping[bytes, bytes]


def stream_key(conversation_id: ConversationId) -> str:
    return f"events:{{{conversation_id}}}"


def build_fields(entry: Entry) -> tuple[bytes, ...]:
    """Names and values in turn: prev, head (`<n> <type> <bytes>` for each event), body."""
    head = "\n".join(f"{event.id.n} {event.type} {len(event.payload)}" for event in entry.events)
    body = b"".join(event.payload for event in entry.events)
    return (b"prev", str(entry.prev).encode(), b"head", head.encode(), b"body", body)


def read_entry(entry_id: EventCursor, fields: Fields) -> Entry:
    """All events of an entry have the fence of its id."""
    body = fields[b"body"]
    events: list[EncodedEvent] = []
    start = 0
    for line in fields[b"head"].decode().split("\n"):
        n, event_type, size = line.split(" ")
        end = start + int(size)
        events.append(EncodedEvent(EventCursor(entry_id.fence, int(n)), event_type, body[start:end]))
        start = end
    return Entry(read_id(fields[b"prev"]), tuple(events))


def try_read_entry(entry_id: EventCursor, fields: Fields) -> Entry | None:
    """None for an entry of a form that only a newer version knows: readers see a gap, and take a snapshot behind it."""
    try:
        return read_entry(entry_id, fields)
    except (KeyError, ValueError) as error:
        report_unknown("stream entry", type(error).__name__)
        return None


def read_id(raw: bytes) -> EventCursor:
    cursor = try_parse_cursor(raw.decode())
    if cursor is None:
        raise ValueError(f"{raw!r} is no event id")
    return cursor
