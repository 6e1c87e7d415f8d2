"""A lease: the right of one worker to write one conversation, numbered by a fence that only grows."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, TurnId


@dataclass(frozen=True, slots=True, order=True)
class EventCursor:
    """A position in a conversation's event stream. Written `<fence>-<n>`; `0-0` is before the first event."""

    fence: int
    n: int

    def __str__(self) -> str:
        return f"{self.fence}-{self.n}"


ORIGIN = EventCursor(0, 0)
_MAX = 1 << 63


def try_parse_cursor(text: str) -> EventCursor | None:
    """Parse `<fence>-<n>`; None for any other text, or when a number has more than 63 bits."""
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


DEFAULT_LEASE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """All times derived from the duration of a lease, in seconds.

    Two workers never act on one turn while `renew_every_s` < `sure_s` < `give_up_s` < `ttl_s`.
    """

    ttl_s: float = DEFAULT_LEASE_S

    @property
    def renew_every_s(self) -> float:
        """Six renewals per lease duration."""
        return self.ttl_s / 6

    @property
    def sure_s(self) -> float:
        """An effect can begin for this long after the last confirmation: three renewals can fail, and a third of the
        lease is left for the call to reach its target."""
        return self.ttl_s * 2 / 3

    @property
    def give_up_s(self) -> float:
        """A worker stops writing when a lease was not confirmed for this long, before it expires in the database."""
        return self.ttl_s * 0.9

    @property
    def retry_share(self) -> float:
        """The factor for pauses between retries of a call, which together last less than half a lease."""
        return min(1.0, self.ttl_s / DEFAULT_LEASE_S)

    @property
    def lock_timeout_s(self) -> float:
        """How long a statement waits for a row; longer leases don't make clients wait longer."""
        return min(2.0, self.ttl_s * 2 / 15)

    @property
    def idle_in_transaction_s(self) -> float:
        """A paused process can lock a row for at most a third of a lease."""
        return min(5.0, self.ttl_s / 3)


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease just claimed, and the state of its conversation.

    `turn_id` is the open turn to run. If it is None, `unannounced` can name ended turns whose terminal event has not
    been published. `attempt` counts takeovers since the turn's last commit.
    """

    lease: Lease
    turn_id: TurnId | None
    attempt: int
    next_seq: int
    last_hash: str
    cursor: EventCursor
    inbox_seq: int
    unannounced: tuple[TurnId, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimBounds:
    """How many turns can run: of one user and of one tenant while others wait, and in all workers together.

    `slots` and `extra` are the ordinary and the extra slots of all workers.
    """

    user_max: int
    tenant_max: int
    slots: int
    extra: int


class SlotKind(Enum):
    """The slot for which a worker claims a turn. It uses an extra slot only when all its ordinary slots are
    occupied."""

    ORDINARY = "ordinary"
    RESERVED = "reserved"
    """An extra slot, for a user without a running turn."""
    LENT = "lent"
    """An extra slot that replaces an ordinary one whose turn makes no progress."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The turn was not claimed, because its user or tenant exceeds a bound and the turn of `to` waits.

    `lane` is the lane of the turn that was not claimed; its doorbell must be rung again there.
    """

    to: ConversationId
    lane: Lane
