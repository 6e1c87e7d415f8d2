"""Positions in the event stream of a conversation."""

from dataclasses import dataclass

_MAX = 1 << 63


@dataclass(frozen=True, slots=True, order=True)
class EventCursor:
    """A position in a conversation's event stream. Written `<fence>-<n>`; `0-0` is before the first event."""

    fence: int
    n: int

    def __str__(self) -> str:
        return f"{self.fence}-{self.n}"


ORIGIN = EventCursor(0, 0)


def try_parse_cursor(text: str) -> EventCursor | None:
    """Parse `<fence>-<n>`; None for any other text, or when a number has more than 63 bits."""
    fence, dash, n = text.partition("-")
    if not dash or not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in (fence, n)):
        return None
    cursor = EventCursor(int(fence), int(n))
    return cursor if cursor.fence < _MAX and cursor.n < _MAX else None
