"""The queue: doorbells that tell workers where to look, the workers that are present, and positions in the queue.

Losing what is in Redis loses nothing but time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, TurnId


class Doorbells(Protocol):
    """All calls raise Unavailable when the wire is down; a ring after at most a second."""

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        """Put the conversation at the end of the lane."""
        ...

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        """The oldest id of the first lane that has one; None when the time is up."""
        ...

    async def check(self, *, limit_s: float) -> None:
        """Raise Unavailable when the wire does not answer in this time."""
        ...


# Which workers are there, what they run programs in, how fast they are: for operators, and for estimates.

MAX_WORKERS: Final = 100
"""How many are told of at once: those that were renewed last."""


@dataclass(frozen=True, slots=True)
class BatteryOutcome:
    """How many attempts of the escape battery were denied. `at` is when it was made, in seconds since 1970."""

    held: int
    total: int
    at: float


@dataclass(frozen=True, slots=True)
class WorkerPresence:
    """One worker. `sandbox` names its launcher and is empty where it runs no programs; `battery` is None where the
    escape battery does not gate them. `worker_id` is random and tells nothing of the machine. `turn_s` is how long its
    turns took lately, None before the first has ended. `extra_slots` are those beyond `slots`, for the claim rule.
    `user_running_max` is its setting of that name, None from a worker of a version without it."""

    worker_id: str
    sandbox: str
    battery: BatteryOutcome | None
    slots: int
    turn_s: float | None = None
    extra_slots: int = 0
    user_running_max: int | None = None


class Presences(Protocol):
    """All calls raise Unavailable when the wire is down, after at most 250 ms."""

    async def save(self, presence: WorkerPresence, *, ttl_s: float) -> None:
        """Tell that this worker is there; forgotten after `ttl_s` unless told again."""
        ...

    async def load_all(self) -> tuple[WorkerPresence, ...]:
        """Those not forgotten, at most MAX_WORKERS, by id."""
        ...


# Where a turn stands in the queue: how many turns of its lane are taken before it.

MAX_AHEAD: Final = 100
"""Nobody is told a larger number, so that finding out costs the same however long the queue is."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """`ahead` is 0 for the next one. With `more` there are more than that."""

    ahead: int
    more: bool = False


def build_position(counted: int) -> QueuePosition:
    """Of turns counted up to one more than the maximum."""
    return QueuePosition(min(counted, MAX_AHEAD), counted > MAX_AHEAD)


# How long the queue is, and where in it a turn stands.


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Turns that wait: all, those of one tenant on one lane, and of how many tenants all are."""

    waiting: int
    of_tenant: int
    tenants: int


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """Turns that wait on one lane, and how many seconds ago the oldest of them was accepted."""

    waiting: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """The turn of a conversation that waits, and where."""

    turn_id: TurnId
    position: QueuePosition


Owned = tuple[Principal, ConversationId]
"""A conversation, and whose it is said to be."""


class Queue(Protocol):
    """Numbers only: nothing of another tenant is told."""

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        """The queue as it is now."""
        ...

    async def load_lanes(self) -> Mapping[Lane, LaneDepth]:
        """All lanes on which a turn waits, whosever it is."""
        ...

    async def load_positions(self, asked: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        """Where the turns of these conversations stand now, without those where none waits, or that are another's."""
        ...
