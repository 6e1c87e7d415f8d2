"""The queue: doorbells that notify workers of turns, the workers that are present, and positions in the queue.

Losing the data in Redis costs only time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, TurnId


class Doorbells(Protocol):
    """All calls raise Unavailable when the wire is down; `ring` after at most a second."""

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        """Put the conversation at the end of the lane."""
        ...

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        """The oldest id of the first lane that has one; None on timeout."""
        ...

    async def check(self, *, limit_s: float) -> None:
        """Raise Unavailable when the wire does not answer within `limit_s`."""
        ...


# Which workers are present, their sandboxes, and their speed: for operators, and for estimates.

MAX_WORKERS: Final = 100
"""How many are reported at once: those renewed last."""


@dataclass(frozen=True, slots=True)
class BatteryOutcome:
    """How many attempts of the escape battery were denied. `at` is when it ran, in seconds since 1970."""

    held: int
    total: int
    at: float


@dataclass(frozen=True, slots=True)
class WorkerPresence:
    """One worker. `sandbox` names its launcher and is empty if it runs no programs; `battery` is None if the escape
    battery does not gate them. `worker_id` is random and reveals nothing about the machine. `turn_s` is the recent
    duration of its turns, None before the first has ended. `extra_slots` are those beyond `slots`, for the claim rule.
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
        """Report that this worker is present; expires after `ttl_s` unless renewed."""
        ...

    async def load_all(self) -> tuple[WorkerPresence, ...]:
        """Those not expired, at most MAX_WORKERS, sorted by id."""
        ...


# The position of a turn in the queue: how many turns of its lane will be claimed before it.

MAX_AHEAD: Final = 100
"""Larger numbers are never reported, so that the cost of counting does not depend on the length of the queue."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """`ahead` is 0 for the next turn. `more` means that there are more than `ahead`."""

    ahead: int
    more: bool = False


def build_position(counted: int) -> QueuePosition:
    """The position for a number of turns, counted up to one more than the maximum."""
    return QueuePosition(min(counted, MAX_AHEAD), counted > MAX_AHEAD)


# The length of the queue, and the position of a turn in it.


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Waiting turns: all, those of one tenant on one lane, and the number of tenants of all."""

    waiting: int
    of_tenant: int
    tenants: int


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """Waiting turns of one lane, and how many seconds ago the oldest of them was accepted."""

    waiting: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """The waiting turn of a conversation, and its position."""

    turn_id: TurnId
    position: QueuePosition


Owned = tuple[Principal, ConversationId]
"""A conversation, and its alleged owner."""


class Queue(Protocol):
    """Numbers only: it reveals nothing of another tenant."""

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        """The queue as it is now."""
        ...

    async def load_lanes(self) -> Mapping[Lane, LaneDepth]:
        """All lanes with a waiting turn, of any owner."""
        ...

    async def load_positions(self, asked: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        """The present positions of these conversations' turns; without conversations that have no waiting turn or
        another owner."""
        ...
