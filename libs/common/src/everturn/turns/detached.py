"""Detached runs: programs that go on while their turn waits without a worker, and how workers monitor them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from everturn.core.identity import Principal
from everturn.core.ids import CallId, TurnId
from everturn.turns.model import Lease
from everturn.turns.ports import Ring

HOLD_S = 30.0
"""How long a worker that is away keeps the runs that it monitors, at most. It reads them every second, but a hold is
renewed only when half of its time is over: so 15 s can be left."""
MAX_DETAIL_CHARS = 500
MAX_OF_PERSON = 8
"""Runs of one person that are detached at once: each uses a machine, or a place of the broker."""

EndedAs = Literal["finished", "lost", "failed", "overdue"]
"""Why a run has ended: its engine has a result, it is gone without one, it has none and another start would have none
either, or it took longer than it may."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """One start of a run: of the call's first, or of the next one after one that was lost. `run_id` is unique.

    `time_limit_s` is how long it may take, with everything that its engine does before and after the program. `task` is
    empty unless the engine has it already.
    """

    turn_id: TurnId
    call_id: CallId
    run_id: str
    starts: int
    engine: str
    time_limit_s: float
    task: str = ""


@dataclass(frozen=True, slots=True)
class DetachedRun:
    """The latest start of a call's run. `task` is the engine's name of it, empty until it is known. `ended_as` is None
    while it runs; then `detail` is what the engine says of its end. `age_s` counts from the first start."""

    run_id: str
    engine: str
    task: str
    starts: int
    ended_as: EndedAs | None
    detail: str
    age_s: float


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """A run that this worker monitors. No turn waits for a `settled` one, and an `overdue` one should have ended."""

    run_id: str
    engine: str
    task: str
    ended_as: EndedAs | None
    detail: str
    age_s: float
    settled: bool
    overdue: bool


class DetachedRuns(Protocol):
    """The rows of detached runs, for one worker, named in the constructor. The worker that saves a start holds the run;
    if it does not `hold` it again in time, another worker will. All raise Unavailable."""

    async def load(self, principal: Principal, turn_id: TurnId, call_id: CallId) -> DetachedRun | None:
        """The run of a call, if it was ever detached."""
        ...

    async def save_start(self, lease: Lease, start: RunStart) -> bool:
        """Record a start before it is made known to the engine, in place of the call's earlier ones.

        Returns False, and records nothing, while MAX_OF_PERSON runs of other calls of the person go on. Raises
        StaleFence.
        """
        ...

    async def save_task(self, lease: Lease, run_id: str, task: str) -> None:
        """Record the engine's name of a run; a turn is parked for runs with a name only. Raises StaleFence."""
        ...

    async def hold(self, engines: Collection[str], *, takes_over: bool = True) -> Sequence[WatchedRun]:
        """The runs of these engines that this worker watches until it calls again: its own, and those whose holder has
        not called in time; at most 1,000. Also overdue runs of any engine that nobody holds.

        Without `takes_over` only its own: after an outage of the database all are due, and their holders come back.
        """
        ...

    async def end(self, run_id: str, ended_as: EndedAs, detail: str = "") -> Ring | None:
        """Record once how a run ended, and put the turn that waits for it back into the queue.

        Returns the doorbell to ring; None if no turn was waiting. Takes MAX_DETAIL_CHARS of `detail`.
        """
        ...

    async def load_known(self, run_ids: Sequence[str]) -> Collection[str]:
        """Those of these ids that have a row."""
        ...

    async def remove(self, run_id: str) -> None:
        """Delete the row of a run of which its engine keeps nothing any more."""
        ...
