"""A lease: the right of one worker to write one conversation, numbered by a fence that only grows."""

from dataclasses import dataclass
from enum import Enum

from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.events.cursor import EventCursor


@dataclass(frozen=True, slots=True)
class Lease:
    """Held by `owner` (a worker's id) until the database says otherwise."""

    conversation_id: ConversationId
    principal: Principal
    owner: str
    fence: int


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
