"""An engine of remote runs in memory, for what a real one does too rarely or too slowly.

A program that sleeps runs until it is stopped; any other one has ended at the first check. Tests change `states` and
`results` as they like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chat_proc.sandbox.remote.port import (
    RUN_ID,
    TASKS_AT_ONCE,
    EngineUnavailable,
    Leftover,
    RemoteRun,
    StartRecord,
    TaskState,
)
from chat_proc.sandbox.remote.recording import read_recorded
from chat_proc.sandbox.supervised import SupervisedRun
from everturn.execution.framing import encode_frame
from everturn.execution.messages import PIPE_FRAME_BYTES, Finished, Posture, Ready, Report, RunLimits, Verdict
from everturn.execution.records import build_message

POSTURE = Posture("fargate", "cpython", 20_000, "user", "none", "task", "rlimit", "storage", "filter")


def build_recorded(verdict: Verdict = "ended", stdout: str = "") -> bytes:
    """What a supervisor sends of a run without output files."""
    report = Report(0, None, None, stdout, "", len(stdout), 0)
    frames = (Ready(POSTURE), Finished(verdict, "", 5, POSTURE, report))
    return b"".join(encode_frame(build_message(frame), PIPE_FRAME_BYTES) for frame in frames)


@dataclass
class MemoryEngine:
    """Implements RemoteEngine. `is_down` is an engine that doesn't answer; `ages_s` are those of runs by id."""

    runs: dict[str, RemoteRun] = field(default_factory=dict)
    states: dict[str, TaskState] = field(default_factory=dict)
    results: dict[str, bytes] = field(default_factory=dict)
    ages_s: dict[str, float] = field(default_factory=dict)
    stopped: list[tuple[str, str]] = field(default_factory=list)
    is_down: bool = False

    async def start(self, run: RemoteRun) -> str:
        if not RUN_ID.fullmatch(run.run_id) or run.launch.capability.grants:
            raise ValueError("not a remote run")
        self._answer()
        self.runs.setdefault(run.run_id, run)
        self.states.setdefault(f"task/{run.run_id}", TaskState("running"))
        return f"task/{run.run_id}"

    async def check(self, tasks: Sequence[str]) -> Mapping[str, TaskState]:
        if len(tasks) > TASKS_AT_ONCE:
            raise ValueError("too many tasks")
        self._answer()
        for task in tasks:
            run = self.runs.get(task.removeprefix("task/"))
            if run and self.states[task].phase == "running" and "sleep" not in run.launch.program:
                self.end(run.run_id)
        return {task: self.states.get(task, TaskState("unknown")) for task in tasks}

    def end(self, run_id: str, result: bytes | None = None) -> None:
        """The task ends with a result."""
        self.results[run_id] = build_recorded() if result is None else result
        self.states[f"task/{run_id}"] = TaskState("ended", "Essential container in task exited", 0)

    async def stop(self, task: str, reason: str) -> None:
        self._answer()
        self.stopped.append((task, reason))
        if self.states.get(task, TaskState("unknown")).phase == "running":
            self.end(task.removeprefix("task/"), build_recorded("cancelled"))
            self.states[task] = TaskState("ended", reason, 0)

    async def collect(self, run_id: str, limits: RunLimits) -> SupervisedRun | None:
        self._answer()
        return read_recorded(self.results[run_id], limits) if run_id in self.results else None

    async def load_start(self, run_id: str) -> StartRecord | None:
        self._answer()
        return self.runs[run_id].start if run_id in self.runs else None

    async def discard(self, run_id: str) -> None:
        self._answer()
        self.runs.pop(run_id, None)
        self.results.pop(run_id, None)

    async def load_leftovers(self, *, older_than_s: float) -> Sequence[Leftover]:
        self._answer()
        running = {task.removeprefix("task/") for task, state in self.states.items() if state.phase == "running"}
        old = [run_id for run_id in {*self.runs, *self.results, *running} if self.ages_s.get(run_id, 0) >= older_than_s]
        return [Leftover(run_id, (f"task/{run_id}",) if run_id in running else ()) for run_id in sorted(old)]

    def _answer(self) -> None:
        if self.is_down:
            raise EngineUnavailable("It is down.")
