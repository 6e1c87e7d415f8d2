"""Server-sent events as the HTML standard defines them, parsed without I/O: bytes in, events out."""

import re
from dataclasses import dataclass

from everturn_client.errors import TooMuch

MAX_EVENT_BYTES = 32 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event. `id` is the last id of the stream, which can be from an earlier event."""

    name: str
    data: str
    id: str


class SseParser:
    """Parses one connection's stream; the events don't depend on how the bytes are split.

    `retry_ms` is the reconnection time that the server requested, None before. An unfinished event is dropped. Raises
    TooMuch when one event has more than `max_event_bytes`.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.retry_ms: int | None = None
        self._max_event_bytes = max_event_bytes
        self._event_bytes = 0
        self._line: list[bytes] = []
        self._after_cr = False
        self._is_first_line = True
        self._name = ""
        self._id = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Parse the next bytes; returns the events that they complete."""
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = False
        events: list[SseEvent] = []
        start = 0
        for end in _LINE_END.finditer(chunk):
            self._keep(chunk[start : end.start()])
            start = end.end()
            event = self._end_line()
            if event:
                events.append(event)
        self._keep(chunk[start:])
        # The second half of a CRLF can arrive with the next bytes.
        self._after_cr = chunk.endswith(b"\r")
        return events

    def _keep(self, part: bytes) -> None:
        self._event_bytes += len(part)
        if self._event_bytes > self._max_event_bytes:
            raise TooMuch(f"One event has more than {self._max_event_bytes} bytes.")
        if part:
            self._line.append(part)

    def _end_line(self) -> SseEvent | None:
        raw = b"".join(self._line)
        self._line.clear()
        if self._is_first_line:
            raw = raw.removeprefix(_BOM)
            self._is_first_line = False
        line = raw.decode("utf-8", errors="replace")
        if not line:
            return self._dispatch()
        field, _, value = line.partition(":")
        self._take_field(field, value.removeprefix(" "))
        return None

    def _take_field(self, field: str, value: str) -> None:
        match field:
            case "data":
                self._data.append(value)
            case "event":
                self._name = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit() and len(value) < 10:
                self.retry_ms = int(value)
            case _:
                """A comment, which begins with a colon, or a field the standard does not know."""

    def _dispatch(self) -> SseEvent | None:
        name, data = self._name or "message", self._data
        self._name, self._data, self._event_bytes = "", [], 0
        return SseEvent(name, "\n".join(data), self._id) if data else None
