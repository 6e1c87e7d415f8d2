"""The interface to what keeps detached runs: programs that go on while their turn waits without a worker."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from chat_proc.sandbox.port import RunNotes, RunRequest, RunResult
from everturn.core.ids import ConversationId
from everturn.turns.detached import DetachedRun, EndedAs, WatchedRun

FindKnown = Callable[[Sequence[str]], Awaitable[Collection[str]]]
"""Which of these ids of runs have a row."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended. `detail` is what `collect` and `discard` need to know of it, or a sentence on why it is lost."""

    ended_as: EndedAs
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CollectedRun:
    """A result, and the notes of the request with which its run was started."""

    result: RunResult
    notes: RunNotes


class RunRow(Protocol):
    """The row of the run that is about to start. Both calls raise StaleFence and Unavailable."""

    @property
    def conversation_id(self) -> ConversationId: ...

    async def save_start(self, *, allowance_s: float, task: str = "") -> bool:
        """Record the start; False if the person has too many detached runs.

        The run may last `allowance_s` in addition to its program's time limit.
        """
        ...

    async def save_task(self, task: str) -> None:
        """Record the engine's name of the run."""
        ...


class DetachedEngine(Protocol):
    """Keeps runs whose programs can't call tools. All calls but `begin` can be repeated, and raise Unavailable."""

    @property
    def name(self) -> str:
        """Its name in the rows of runs."""
        ...

    @property
    def allowance_s(self) -> float:
        """How long a run may take in addition to its program's time limit."""
        ...

    def poll_interval_s(self, age_s: float) -> float:
        """How often the state of a run of this age is worth a question."""
        ...

    async def begin(
        self, request: RunRequest, stop: asyncio.Event, row: RunRow, *, once_within_s: float | None = None
    ) -> RunResult | None:
        """Start a run, named by the request's execution id. Returns its result if it needs no detaching, otherwise None
        once the row is saved, perhaps without the task.

        With `once_within_s`, an engine elsewhere is asked once, and refuses the run if it has not answered by then.
        A start that was cut off can be repeated with the same id. Raises what `row` raises, and Unavailable.
        """
        ...

    async def check(self, runs: Sequence[WatchedRun]) -> Mapping[str, RunEnd]:
        """Which of these runs have ended, by run id."""
        ...

    def list_kept(self) -> Sequence[str]:
        """The ids of the runs that end with this process, once their rows are saved."""
        ...

    async def stop(self, run_id: str, task: str) -> None:
        """End a run; what it has written is lost."""
        ...

    async def collect(self, request: RunRequest, run: DetachedRun) -> CollectedRun | None:
        """The result of a run that has ended; None if there is none, or none any more. The inputs of the request are
        those of now, and are not read."""
        ...

    async def discard(self, run: WatchedRun) -> None:
        """Delete everything that is kept of a run that has ended or was stopped."""
        ...

    async def sweep(self, find_known: FindKnown) -> None:
        """End and delete runs that have no row, such as those of erased conversations."""
        ...
