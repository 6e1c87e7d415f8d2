"""Which workers are there, what they run programs in, how fast they are: for operators, and for estimates."""

from dataclasses import dataclass
from typing import Final, Protocol

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
