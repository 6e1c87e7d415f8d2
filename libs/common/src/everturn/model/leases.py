"""A lease: the right of one worker to write one conversation, numbered by a fence that only grows."""

from dataclasses import dataclass

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId


@dataclass(frozen=True, slots=True, order=True)
class EventCursor:
    """A place in a conversation's event stream. Written `<fence>-<n>`; `0-0` is before the first event."""

    fence: int
    n: int

    def __str__(self) -> str:
        return f"{self.fence}-{self.n}"


ORIGIN = EventCursor(0, 0)
_MAX = 1 << 63


def try_parse_cursor(text: str) -> EventCursor | None:
    """Read `<fence>-<n>`; None when it is not exactly that, or a number has more than 63 bits."""
    fence, dash, n = text.partition("-")
    if not dash or not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in (fence, n)):
        return None
    cursor = EventCursor(int(fence), int(n))
    return cursor if cursor.fence < _MAX and cursor.n < _MAX else None


@dataclass(frozen=True, slots=True)
class Lease:
    """Held by `owner` (a worker's id) until the database says otherwise."""

    conversation_id: ConversationId
    principal: Principal
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease just taken, and where its conversation stands.

    `turn_id` is the open turn to run; None when there is none, then `unannounced` may name ended turns
    whose terminal event has not been published. `attempt` counts takeovers since the turn's last commit.
    """

    lease: Lease
    turn_id: TurnId | None
    attempt: int
    next_seq: int
    last_hash: str
    cursor: EventCursor
    inbox_seq: int
    unannounced: tuple[TurnId, ...] = ()
