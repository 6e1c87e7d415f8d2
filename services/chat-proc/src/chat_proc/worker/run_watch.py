"""Polls the engines of detached runs: wakes turns whose runs have ended, and removes runs that no turn waits for."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeVar

import structlog

from chat_proc.sandbox.detached.port import DetachedEngine, RunEnd
from everturn.core.clock import Clock
from everturn.core.errors import EverturnError
from everturn.core.loops import guarded, run_guarded
from everturn.core.metrics import DETACHED_RUNS, DETACHED_RUNS_ENDED, DETACHED_RUNS_FAILED
from everturn.queue.model import Doorbells
from everturn.turns.detached import HOLD_S, DetachedRuns, WatchedRun

_log = structlog.get_logger(__name__)

POLL_EVERY_S: Final = 1.0
"""Between two reads of the rows, or a twelfth of a hold if that is shorter; engines decide how often they are asked."""
SWEEP_LIMIT_S: Final = 60.0
AGAIN_S: Final = 30.0
"""When the removal of a run is tried again, so that a few that always fail leave time for the others."""
SWEEP_EVERY_S: Final = 300.0
CLOSE_S: Final = 5.0
T = TypeVar("T")
_Step = Literal["ask", "stop", "remove"]


class RunWatch:
    """Watches the runs of this worker, and those of workers that are gone. The rows decide; it only remembers when a
    run is due. Each engine has a task of its own, so that a slow one delays no others.

    After its start and after an outage of the database, it takes over no runs for `grace_s`, which is `hold_s` unless
    given: their workers come back.
    """

    def __init__(
        self,
        runs: DetachedRuns,
        engines: Mapping[str, DetachedEngine],
        doorbells: Doorbells,
        clock: Clock,
        *,
        hold_s: float = HOLD_S,
        grace_s: float | None = None,
    ) -> None:
        self._grace_s = hold_s if grace_s is None else grace_s
        self._pause_s = min(POLL_EVERY_S, hold_s / 12)
        # Of one poll, also if a step hangs. A hold that was just read has at least half of its time left, and a sixth
        # of it is for the pause and for the next read: so no other worker takes the runs.
        self._budget_s = hold_s / 3
        self._linked_since_s: dict[str, float] = {}
        self._runs = runs
        self._engines = engines
        self._doorbells = doorbells
        self._clock = clock
        self._due_at_s: dict[str, dict[tuple[_Step, str], float]] = {}
        """When steps of runs are due, by engine, step and run."""
        self._stopped: dict[str, set[str]] = {}
        """Runs that were stopped and are not removed yet, by engine."""

    async def run(self) -> None:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for engine in self._engines.values():
                tasks.create_task(run_guarded("detached_runs", lambda engine=engine: self._poll_often(engine)))
                tasks.create_task(run_guarded("detached_runs", lambda engine=engine: self._sweep_often(engine)))

    async def _poll_often(self, engine: DetachedEngine) -> None:
        while True:
            await self.poll(engine)
            await asyncio.sleep(self._pause_s)

    async def _sweep_often(self, engine: DetachedEngine) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            await self.sweep(engine)

    async def poll(self, engine: DetachedEngine) -> None:
        """Do what is due for the runs of an engine. What fails is tried again.

        The engine is asked first, and stops what no turn waits for before anything is deleted: a store that hangs
        delays removals, but no turn that waits, and no end of a program.
        """
        until_s = self._clock.monotonic() + self._budget_s
        held = await self._hold_runs(engine, until_s)
        if held is None:
            return
        await self._try("stop unknown runs", engine.name, self._stop_unknown(engine), until_s)
        await self._ask(engine, held, until_s)
        await self._stop_settled(engine, held, until_s)
        for run in held:
            if self._clock.monotonic() >= until_s:
                return
            if run.engine not in self._engines:
                await self._try("end", run.run_id, self._give_up_unreachable(run), until_s)
            elif run.settled and not self._goes_on_unwanted(run) and self._try_postpone("remove", run, AGAIN_S):
                await self._try("remove", run.run_id, self._remove(engine, run), until_s)

    async def sweep(self, engine: DetachedEngine) -> None:
        """Remove what an engine keeps of runs that have no row any more."""
        until_s = self._clock.monotonic() + SWEEP_LIMIT_S
        await self._try("sweep", engine.name, engine.sweep(self._runs.load_known), until_s)

    async def close(self) -> None:
        """Wake the turns whose runs end with this worker, so that others start them again. Whatever is not done within
        CLOSE_S, others find when it stays away."""
        until_s = self._clock.monotonic() + CLOSE_S
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                for engine in self._engines.values():
                    if engine.list_kept():
                        held = await self._hold_runs(engine, until_s, takes_over=False)
                        over = await self._ask(engine, held or (), until_s)
                        over |= {run.run_id for run in held or () if run.settled or run.ended_as is not None}
                        kept = engine.list_kept()
                        await asyncio.gather(
                            *(self._give_up(engine, run_id, until_s, is_over=run_id in over) for run_id in kept)
                        )

    async def _hold_runs(
        self, engine: DetachedEngine, until_s: float, *, takes_over: bool = True
    ) -> Sequence[WatchedRun] | None:
        """The engine's runs that this worker watches, and those of engines that it does not have; None if the database
        can't be reached."""
        now_s = self._clock.monotonic()
        linked_s = now_s - self._linked_since_s.setdefault(engine.name, now_s)
        holding = self._runs.hold([engine.name], takes_over=takes_over and linked_s >= self._grace_s)
        # Not counted as a failure of runs: there may be none, and outages of the database have their own alerts.
        held = await self._try("hold the runs", engine.name, holding, until_s, is_counted=False)
        if held is None:
            self._linked_since_s.pop(engine.name, None)
            return None
        ours = [run for run in held if run.engine == engine.name]
        DETACHED_RUNS.labels(engine.name).set(sum(run.ended_as is None for run in ours))
        due_at_s, known = self._due_at_s.get(engine.name, {}), {run.run_id for run in ours}
        self._due_at_s[engine.name] = {key: at_s for key, at_s in due_at_s.items() if key[1] in known}
        self._stopped[engine.name] = known & self._stopped.get(engine.name, set())
        return [*ours, *(run for run in held if run.engine not in self._engines)]

    async def _give_up(self, engine: DetachedEngine, run_id: str, until_s: float, *, is_over: bool) -> None:
        """Stop a run. It is lost unless its end is recorded, or no turn waits for it."""
        if not is_over:
            lost = RunEnd("lost", "The worker that ran it was stopped.")
            await self._try("end", run_id, self._end(engine.name, run_id, lost), until_s)
        await self._try("stop", run_id, engine.stop(run_id, run_id), until_s)

    def _try_postpone(self, step: _Step, run: WatchedRun, pause_s: float) -> bool:
        """Whether a step of a run is due; then it is due again after the pause."""
        due_at_s, now_s = self._due_at_s.setdefault(run.engine, {}), self._clock.monotonic()
        if due_at_s.get((step, run.run_id), 0.0) > now_s:
            return False
        due_at_s[step, run.run_id] = now_s + pause_s
        return True

    async def _stop_unknown(self, engine: DetachedEngine) -> None:
        """Stop kept runs without a row: another worker has started them again, or their conversation was erased."""
        if kept := engine.list_kept():
            known = await self._runs.load_known(kept)
            for run_id in (run_id for run_id in kept if run_id not in known):
                await engine.stop(run_id, run_id)

    async def _ask(self, engine: DetachedEngine, held: Sequence[WatchedRun], until_s: float) -> set[str]:
        """Ask the engine which of these runs have ended. Those that should have are ended now. Returns the ids of those
        whose end was recorded."""
        going = [run for run in held if run.engine == engine.name and _goes_on(run)]
        due = [run for run in going if self._try_postpone("ask", run, engine.poll_interval_s(run.age_s))]
        if not due:
            return set()
        checking = engine.check([run for run in due if run.task])
        ends = await self._try("check", engine.name, checking, until_s) or {}
        late = {run.run_id: RunEnd("overdue") for run in due if run.overdue}
        recorded: set[str] = set()
        for run_id, end in {**late, **ends}.items():
            if self._clock.monotonic() < until_s:
                if await self._try("end", run_id, self._end(engine.name, run_id, end), until_s):
                    recorded.add(run_id)
            else:
                self._due_at_s[engine.name].pop(("ask", run_id), None)
        return recorded

    async def _give_up_unreachable(self, run: WatchedRun) -> None:
        """End a run whose engine no worker has any more, and forget it once its turn has."""
        if run.settled:
            await self._runs.remove(run.run_id)
        elif run.ended_as is None:
            end = RunEnd("overdue", f"The engine {run.engine} is not configured any more.")
            await self._end(run.engine, run.run_id, end)

    def _goes_on_unwanted(self, run: WatchedRun) -> bool:
        stopped = self._stopped.get(run.engine, ())
        return run.settled and run.ended_as in (None, "overdue") and run.run_id not in stopped

    async def _stop_settled(self, engine: DetachedEngine, held: Sequence[WatchedRun], until_s: float) -> None:
        for run in held:
            if self._clock.monotonic() >= until_s:
                return
            if run.engine != engine.name or not self._goes_on_unwanted(run):
                continue
            if self._try_postpone("stop", run, AGAIN_S):
                await self._try("stop", run.run_id, self._stop(engine, run), until_s)

    async def _stop(self, engine: DetachedEngine, run: WatchedRun) -> None:
        await engine.stop(run.run_id, run.task)
        self._stopped.setdefault(run.engine, set()).add(run.run_id)

    async def _remove(self, engine: DetachedEngine, run: WatchedRun) -> None:
        await engine.discard(run)
        await self._runs.remove(run.run_id)

    async def _end(self, engine: str, run_id: str, end: RunEnd) -> bool:
        """Record an end, and return True."""
        ring = await self._runs.end(run_id, end.ended_as, end.detail)
        DETACHED_RUNS_ENDED.labels(engine, end.ended_as).inc()
        _log.info("Detached run has ended", run_id=run_id, ended_as=end.ended_as)
        if ring is not None:
            # A lost doorbell is rung again by the sweeper.
            await self._doorbells.ring(ring.lane, ring.conversation_id)
        return True

    async def _try(
        self, step: str, of: str, work: Awaitable[T], until_s: float, *, is_counted: bool = True
    ) -> T | None:
        """What the work returns; None if it failed, which holds up nothing else."""
        with guarded("detached_run", passing=(EverturnError, TimeoutError)):
            try:
                async with asyncio.timeout(until_s - self._clock.monotonic()):
                    return await work
            except (EverturnError, TimeoutError) as error:
                if is_counted:
                    DETACHED_RUNS_FAILED.inc()
                _log.warning(
                    "A step of a detached run failed", step=step, of=of, error=str(error) or "no answer in time"
                )
        return None


def _goes_on(run: WatchedRun) -> bool:
    """Whether the engine is asked about it. A run without a task is started by its turn, unless that takes too long."""
    return run.ended_as is None and not run.settled and (bool(run.task) or run.overdue)
