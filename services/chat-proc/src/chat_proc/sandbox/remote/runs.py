"""Detached runs on an engine that has machines of its own: they survive the workers that monitor them."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from chat_proc.sandbox.detached.port import CollectedRun, FindKnown, RunEnd, RunRow
from chat_proc.sandbox.launching import build_run_result
from chat_proc.sandbox.port import RunError, RunRequest, RunResult
from chat_proc.sandbox.remote.port import ALLOWANCE_S, TASKS_AT_ONCE, RemoteEngine, RunRefused, TaskState
from chat_proc.sandbox.remote.recording import prepare_run
from chat_proc.sandbox.results import build_broken, build_refused
from chat_proc.sandbox.supervised import SupervisorFailed
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.retry import RetryPolicy
from everturn.execution.messages import RunLimits
from everturn.execution.task_orders import TASK_EXITS, TaskExit
from everturn.turns.detached import MAX_OF_PERSON, DetachedRun, WatchedRun

_log = structlog.get_logger(__name__)

START_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""The turn keeps its worker while the engine is busy or has no room. A run that was lost is tried once at a time."""
START_S: Final = 90.0
"""For all these tries: less than a call has beyond its profile's time limit."""
FIRST_POLL_S: Final = 2.0
LONGEST_POLL_S: Final = 30.0
_POLL_SHARE: Final = 0.1
UNKNOWN_S: Final = 120.0
"""How long an engine may not know a task before that is lost."""
FORGOTTEN_S: Final = 300.0
"""After how long a run about which nobody asks any more, such as one that another worker has taken, is forgotten."""
LEFT_AFTER_S: Final = 300.0
"""Clocks of the engine and the database can differ by this much."""
_IMAGE: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""The detail of the row of a run whose task has stored a result is the digest of its image."""
_UNWANTED: Final = "Everturn: no turn waits for this run"


class RemoteRuns:
    """Implements DetachedEngine. `limits` are those of the profiles that run here."""

    def __init__(
        self,
        name: str,
        engine: RemoteEngine,
        limits: Mapping[str, RunLimits],
        *,
        starting: RetryPolicy | None = None,
        unknown_s: float = UNKNOWN_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowance_s = ALLOWANCE_S
        self._unknown_s = unknown_s
        self._now_s = now_s
        self._unknown: dict[str, tuple[float, float]] = {}
        """When the engine was first and last asked about runs whose tasks it does not know."""
        self.name = name
        self._engine = engine
        self._limits = limits
        self._starting = starting or RetryPolicy(START_PAUSES_S)

    def poll_interval_s(self, age_s: float) -> float:
        return min(LONGEST_POLL_S, max(FIRST_POLL_S, _POLL_SHARE * age_s))

    async def begin(
        self, request: RunRequest, stop: asyncio.Event, row: RunRow, *, once_within_s: float | None = None
    ) -> RunResult | None:
        """Start the task, and never wait for it. `stop` is not read: a turn that a person stops ends the run."""
        del stop
        limits = self._limits[request.profile]
        try:
            prepared = await prepare_run(request, limits)
        except OSError as error:
            return build_refused(request, limits, RunError("sandbox_failed", str(error), "request"))
        if isinstance(prepared, RunResult):
            return prepared
        if not await row.save_start(allowance_s=prepared.allowance_s):
            many = f"This person already has {MAX_OF_PERSON} detached runs. Wait for one to end, or stop one."
            # One that was lost had its place, so it waits for another.
            where = "request" if once_within_s is None else "sandbox"
            return build_refused(request, limits, RunError("sandbox_failed", many, where))
        starting, limit_s = (self._starting, START_S) if once_within_s is None else (RetryPolicy(()), once_within_s)
        try:
            async with asyncio.timeout(limit_s):
                task = await starting.call(lambda: self._engine.start(prepared))
        except TimeoutError:
            # A task may have started. Nobody waits for it if the call fails, and a repeated start finds it.
            late = RunError("sandbox_failed", "The engine did not answer in time.", "sandbox")
            return build_refused(request, limits, late)
        except (Unavailable, RunRefused) as error:
            where = "request" if isinstance(error, RunRefused) else "sandbox"
            return build_refused(request, limits, RunError("sandbox_failed", str(error), where))
        try:
            await row.save_task(task)
        except Unavailable as error:
            # A turn doesn't wait for a run without a task: the next worker repeats the start, which finds the task.
            _log.warning("Could not save the task of a run", run_id=prepared.run_id, error=str(error))
        return None

    async def check(self, runs: Sequence[WatchedRun]) -> Mapping[str, RunEnd]:
        ends: dict[str, RunEnd] = {}
        before_s = self._now_s() - FORGOTTEN_S
        self._unknown = {run_id: asked for run_id, asked in self._unknown.items() if asked[1] > before_s}
        for first in range(0, len(runs), TASKS_AT_ONCE):
            asked = runs[first : first + TASKS_AT_ONCE]
            states = await self._engine.check([run.task for run in asked])
            ends |= {run.run_id: end for run in asked if (end := self._find_end(run, states[run.task])) is not None}
        return ends

    def _find_end(self, run: WatchedRun, state: TaskState) -> RunEnd | None:
        """The end of a run. An engine can learn of a task seconds after it has started it."""
        if state.phase != "unknown":
            self._unknown.pop(run.run_id, None)
        if state.phase == "ended":
            _log.info("A task has ended", run_id=run.run_id, reason=state.reason, exit_code=state.exit_code)
            if state.exit_code == TaskExit.STORED and _IMAGE.fullmatch(state.image):
                return RunEnd("finished", state.image)
            return RunEnd("failed" if state.is_final else "finished", _describe_end(state.exit_code))
        if state.phase != "unknown":
            return None
        now_s = self._now_s()
        since_s, _ = self._unknown.get(run.run_id, (now_s, now_s))
        self._unknown[run.run_id] = since_s, now_s
        if now_s - since_s < self._unknown_s:
            return None
        # It stays unknown until its end is recorded: then nobody asks about it any more.
        return RunEnd("finished", "ECS no longer knows the task.")

    def list_kept(self) -> Sequence[str]:
        return ()

    async def stop(self, run_id: str, task: str) -> None:
        if task:
            await self._engine.stop(task, _UNWANTED)

    async def collect(self, request: RunRequest, run: DetachedRun) -> CollectedRun | None:
        limits = self._limits[request.profile]
        try:
            done = await self._engine.collect(run.run_id, limits)
            # A task is stopped by us only if no turn waits for it: this one was stopped by the engine or its operator.
            if done is None or done.finished.verdict == "cancelled":
                return None
            if (start := await self._engine.load_start(run.run_id)) is None:
                _log.error("The record of a run's start is gone, so its result is not used", run_id=run.run_id)
                return None
        except SupervisorFailed as failure:
            broken = build_broken(request, limits, RunError("sandbox_failed", str(failure), "sandbox"))
            return CollectedRun(broken, request.notes)
        result = await asyncio.to_thread(partial(build_run_result, request, limits, done, start.inputs))
        image = run.detail if _IMAGE.fullmatch(run.detail) else ""
        return CollectedRun(replace(result, record=replace(result.record, image=image)), start.notes)

    async def discard(self, run: WatchedRun) -> None:
        await self._engine.discard(run.run_id)

    async def sweep(self, find_known: FindKnown) -> None:
        """A row is saved before its run is started, so nothing of a run without one is wanted."""
        found = await self._engine.load_leftovers(older_than_s=LEFT_AFTER_S)
        known = await find_known([left.run_id for left in found])
        failed: list[EverturnError] = []
        for left in (left for left in found if left.run_id not in known):
            _log.warning("Removing what is left of a run", engine=self.name, run_id=left.run_id, tasks=left.tasks)
            try:
                for task in left.tasks:
                    await self._engine.stop(task, _UNWANTED)
                await self._engine.discard(left.run_id)
            except EverturnError as error:
                _log.warning("Could not remove what is left of a run", run_id=left.run_id, error=str(error))
                failed.append(error)
        if failed:
            raise failed[0]


def _describe_end(exit_code: int | None) -> str:
    """How a task has ended, without the engine's words, which name machines and addresses of the operator."""
    if exit_code is None:
        return "Its task ended without an exit code."
    meaning = TASK_EXITS.get(exit_code)
    return f"Its task ended with exit code {exit_code}{f': {meaning}' if meaning else ''}."
