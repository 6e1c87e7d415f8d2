"""The interface to an engine that runs programs on machines of its own, such as ECS on Fargate.

A remote run is a recorded input (`remote.recording`): what a worker would send to a supervisor is stored before the
task starts, and what the supervisor sends is stored before the task ends. So nobody has to stay connected, and a run
survives the worker that started it. Its program can't call tools.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from chat_proc.sandbox.port import FileHash, RunNotes
from chat_proc.sandbox.supervised import SupervisedRun, SupervisorFailed
from everturn.core.errors import Unavailable
from everturn.execution.messages import Launch, RunLimits

RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""An engine's names and tokens for idempotency allow these; 64 is the length of a client token of ECS."""

TASKS_AT_ONCE: Final = 100
"""Maximum tasks of one `check`, the limit of `describe_tasks` of ECS."""

ALLOWANCE_S: Final = 900.0
"""Of a task, in addition to its program's time limit: mostly for its own start."""

Phase = Literal["pending", "running", "ended", "unknown"]


class EngineUnavailable(Unavailable):
    """The engine of remote runs does not answer, or has no room now. Try again later."""


class EngineNotReady(Unavailable):
    """The engine can't run programs with these settings."""


class RunRefused(SupervisorFailed):
    """The engine rejects this run, and would do so again."""

    is_permanent: bool = True


@dataclass(frozen=True, slots=True)
class StartRecord:
    """What a run was started with and its result must say: the hashes of its inputs, and the notes of its request."""

    inputs: tuple[FileHash, ...] = ()
    notes: RunNotes = field(default_factory=RunNotes)


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """One run to start. `launch.execution_id` is its id, as `RUN_ID` describes; its capability is empty.

    `inputs` are the pieces of the input tar, at most 64 KiB each, and `start` describes them. `allowance_s` is how long
    a task may take in addition to the program's time limit, from the call of `start` until it has stored its result.
    """

    launch: Launch
    inputs: Sequence[bytes]
    start: StartRecord = field(default_factory=StartRecord)
    allowance_s: float = ALLOWANCE_S

    @property
    def run_id(self) -> str:
        return self.launch.execution_id


@dataclass(frozen=True, slots=True)
class TaskState:
    """What the engine knows of a task. `unknown` is a task that it has forgotten, or never had.

    `reason` and `exit_code` belong to `ended`: the engine's words, and the code of the task's process (None if it never
    started). `is_final` is an end without a result that another start would not change. Any other ended task usually
    has a result, whatever its exit code: collect it before you report a failure. `image` is the digest of the image
    that it ran, empty if the engine does not say.
    """

    phase: Phase
    reason: str = ""
    exit_code: int | None = None
    is_final: bool = False
    image: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something of a run that the engine still has: its stored data, or tasks that have not ended."""

    run_id: str
    tasks: tuple[str, ...] = ()


class RemoteEngine(Protocol):
    """Starts and observes remote runs. It keeps no state: any worker can go on where another one stopped.

    All methods raise EngineUnavailable if the engine can't be reached or is busy, after a few attempts of its own; the
    call can then be repeated.
    """

    async def start(self, run: RemoteRun) -> str:
        """Store the run and start its task; returns the engine's name of the task.

        Can be repeated, as after an answer that was lost: the same run has one task, which runs what the first start
        has stored. Raises RunRefused.
        """
        ...

    async def load_start(self, run_id: str) -> StartRecord | None:
        """What was stored of the start of a run; None if it is gone. Raises SupervisorFailed if it can't be used."""
        ...

    async def check(self, tasks: Sequence[str]) -> Mapping[str, TaskState]:
        """The state of each of at most `TASKS_AT_ONCE` tasks. Raises ValueError for more."""
        ...

    async def stop(self, task: str, reason: str) -> None:
        """Make a task end; returns before it has. Can be repeated, also for a task that has ended or is unknown.

        The program is stopped as by a person who cancels it, and the result has what it wrote until then.
        """
        ...

    async def collect(self, run_id: str, limits: RunLimits) -> SupervisedRun | None:
        """The stored result of a run with these limits, which is bounded and checked as on a live line; None if there
        is none. Raises SupervisorFailed if the result can't be used."""
        ...

    async def discard(self, run_id: str) -> None:
        """Delete what is stored of a run: its secret, its recorded input with the record of its start, and its result.
        Can be repeated.

        A task that still runs is not stopped by this; what it stores afterwards is a leftover. So stop it first.
        """
        ...

    async def load_leftovers(self, *, older_than_s: float) -> Sequence[Leftover]:
        """Runs of which something older is still there, at most 1000 in one call, for a sweeper that knows which of
        them are over."""
        ...
