"""The queue: doorbells that notify workers of turns, the workers that are present, how many turns can wait, and their
positions. Losing the data in Redis costs only time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from everturn.core.errors import Conflict
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ConversationId, TurnId

MAX_WORKERS: Final = 100
"""How many are reported at once: those renewed last."""

MAX_AHEAD: Final = 100
"""Larger numbers are never reported, so that the cost of counting does not depend on the length of the queue."""

Full = Literal["queue", "tenant", "user"]
"""What is full: the whole queue, or the share of one tenant or user."""

Owned = tuple[Principal, ConversationId]
"""A conversation, and its alleged owner."""


class Doorbells(Protocol):
    """All calls raise Unavailable when Redis is down; `ring` after at most a second."""

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        """Put the conversation at the end of the lane."""
        ...

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        """The oldest id of the first lane that has one; None on timeout."""
        ...

    async def check(self, *, limit_s: float, writing: bool = False) -> None:
        """Raise Unavailable when Redis does not answer within `limit_s`; with `writing` also when it stores nothing,
        as a server without memory does."""
        ...


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
    """All calls raise Unavailable when Redis is down, after at most 250 ms."""

    async def save(self, presence: WorkerPresence, *, ttl_s: float) -> None:
        """Report that this worker is present; expires after `ttl_s` unless renewed."""
        ...

    async def load_all(self) -> tuple[WorkerPresence, ...]:
        """Those not expired, at most MAX_WORKERS, sorted by id."""
        ...


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """`ahead` is 0 for the next turn. `more` means that there are more than `ahead`."""

    ahead: int
    more: bool = False


def build_position(counted: int) -> QueuePosition:
    """The position for a number of turns, counted up to one more than the maximum."""
    return QueuePosition(min(counted, MAX_AHEAD), counted > MAX_AHEAD)


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Waiting turns: all, and those of one tenant on one lane."""

    waiting: int
    of_tenant: int


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


class QueueFull(Conflict):
    """There is no place in the queue for one more turn."""

    def __init__(self, full: Full, text: str) -> None:
        super().__init__(text)
        self.full: Full = full


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Waiting turns, with the one to be accepted: all, and those of its tenant, of its tenant on its lane, and of its
    user."""

    waiting: int
    of_tenant: int
    of_tenant_on_lane: int
    of_user: int


@dataclass(frozen=True, slots=True)
class QueueCaps:
    """How many turns can wait. One tenant's users can't fill the queue, those of one lane leave places to the tenant's
    other lanes, and one user leaves places to the others of the tenant.

    A share is a fixed part of the queue, whether others wait or not: an accepted turn keeps its place until it runs,
    also when others come.
    """

    total: int

    @property
    def tenant(self) -> int:
        """Three quarters: of one tenant on all lanes."""
        return max(1, self.total * 3 // 4)

    @property
    def tenant_on_lane(self) -> int:
        """Half: of one tenant on one lane."""
        return max(1, self.total // 2)

    @property
    def user(self) -> int:
        """An eighth: of one user in one project."""
        return max(1, self.total // 8)

    def check_depth(self, depth: QueueDepth) -> None:
        """Check that there is a place for one more turn. Raises QueueFull."""
        self.check(QueueCounts(depth.waiting + 1, depth.of_tenant + 1, depth.of_tenant + 1, 1))

    def check(self, counts: QueueCounts) -> None:
        """Raises QueueFull, for the smallest share that is exceeded."""
        if counts.of_user > self.user:
            raise QueueFull("user", f"{self.user} of your turns are already waiting.")
        if counts.of_tenant_on_lane > self.tenant_on_lane:
            raise QueueFull("tenant", f"{self.tenant_on_lane} turns of this tenant are already waiting.")
        if counts.of_tenant > self.tenant:
            raise QueueFull("tenant", f"{self.tenant} turns of this tenant are already waiting.")
        if counts.waiting > self.total:
            raise QueueFull("queue", f"{self.total} turns are already waiting.")


QUEUE_CAPS: Final = QueueCaps(1000)
"""Where the operator sets none."""


class Queue(Protocol):
    """Numbers only: it reveals nothing of another tenant."""

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        """The queue as it is now."""
        ...

    async def load_lanes(self) -> Mapping[Lane, LaneDepth]:
        """All lanes with a waiting turn, of any owner."""
        ...

    async def load_positions(self, conversations: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        """The present positions of these conversations' turns. Conversations without a waiting turn are left out,
        and so are those of another owner."""
        ...
