"""Polls the engines of detached runs: wakes turns whose runs have ended, and removes runs that no turn waits for."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

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
"""Between two reads of the rows; engines decide how often they are asked."""
BUDGET_S: Final = HOLD_S / 3
"""Time of one poll. Then the rows are read again, so that no other worker takes them."""
STEP_LIMIT_S: Final = HOLD_S / 3
AGAIN_S: Final = 30.0
"""When a run is tried again after a failure, so that a few that always fail leave time for the others."""
SWEEP_EVERY_S: Final = 300.0
CLOSE_S: Final = 5.0
T = TypeVar("T")


class RunWatch:
    """Watches the runs of this worker, and those of workers that are gone. The rows decide; it only remembers when a
    run is due. Each engine has a task of its own, so that a slow one delays no others.

    After its start and after an outage of the database, it takes over no runs for `hold_s`: their workers come back.
    """

    def __init__(
        self,
        runs: DetachedRuns,
        engines: Mapping[str, DetachedEngine],
        doorbells: Doorbells,
        clock: Clock,
        *,
        hold_s: float = HOLD_S,
    ) -> None:
        self._hold_s = hold_s
        self._linked_since_s: dict[str, float] = {}
        self._runs = runs
        self._engines = engines
        self._doorbells = doorbells
        self._clock = clock
        self._due_at_s: dict[str, float] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for engine in self._engines.values():
                tasks.create_task(run_guarded("detached_runs", lambda engine=engine: self._run(engine)))

    async def _run(self, engine: DetachedEngine) -> None:
        sweep_at_s = self._clock.monotonic() + SWEEP_EVERY_S
        while True:
            await self.poll(engine)
            if self._clock.monotonic() >= sweep_at_s:
                sweep_at_s = self._clock.monotonic() + SWEEP_EVERY_S
                await self.sweep(engine)
            await asyncio.sleep(POLL_EVERY_S)

    async def poll(self, engine: DetachedEngine) -> None:
        """Do what is due for the runs of an engine. What fails is tried again."""
        now_s = self._clock.monotonic()
        until_s = now_s + BUDGET_S
        linked_s = now_s - self._linked_since_s.setdefault(engine.name, now_s)
        holding = self._runs.hold([engine.name], takes_over=linked_s >= self._hold_s)
        held = await self._try("hold the runs", engine.name, holding)
        if held is None:
            del self._linked_since_s[engine.name]
            return
        DETACHED_RUNS.labels(engine.name).set(sum(run.ended_as is None for run in held))
        self._forget_others(engine, held)
        await self._try("stop unknown runs", engine.name, self._stop_unknown(engine))
        for run in held:
            if run.engine not in self._engines:
                await self._try("end", run.run_id, self._give_up_unreachable(run))
            elif run.settled and self._is_due(run):
                await self._try("remove", run.run_id, self._remove(engine, run))
            if self._clock.monotonic() > until_s:
                return
        ours = [run for run in held if run.engine == engine.name]
        await self._ask(engine, [run for run in ours if _goes_on(run) and self._is_due(run)])

    async def sweep(self, engine: DetachedEngine) -> None:
        """Remove what an engine keeps of runs that have no row any more."""
        await self._try("sweep", engine.name, engine.sweep(self._runs.load_known))

    async def close(self) -> None:
        """Wake the turns whose runs end with this worker, so that others start them again. Whatever is not done within
        CLOSE_S, others find when it stays away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                for engine in self._engines.values():
                    await self.poll(engine)
                    await asyncio.gather(*(self._give_up(engine, run_id) for run_id in engine.list_kept()))

    async def _give_up(self, engine: DetachedEngine, run_id: str) -> None:
        lost = RunEnd("lost", "The worker that ran it was stopped.")
        await self._try("end", run_id, self._end(engine.name, run_id, lost))
        await self._try("stop", run_id, engine.stop(run_id, run_id))

    def _forget_others(self, engine: DetachedEngine, held: Sequence[WatchedRun]) -> None:
        prefix = f"{engine.name}:"
        ours = {prefix + run.run_id for run in held}
        for key in [key for key in self._due_at_s if key.startswith(prefix) and key not in ours]:
            del self._due_at_s[key]

    def _is_due(self, run: WatchedRun) -> bool:
        return self._due_at_s.get(f"{run.engine}:{run.run_id}", 0.0) <= self._clock.monotonic()

    def _postpone(self, run: WatchedRun, pause_s: float) -> None:
        self._due_at_s[f"{run.engine}:{run.run_id}"] = self._clock.monotonic() + pause_s

    async def _stop_unknown(self, engine: DetachedEngine) -> None:
        """Stop kept runs without a row: another worker has started them again, or their conversation was erased."""
        if kept := engine.list_kept():
            known = await self._runs.load_known(kept)
            for run_id in (run_id for run_id in kept if run_id not in known):
                await engine.stop(run_id, run_id)

    async def _ask(self, engine: DetachedEngine, due: Sequence[WatchedRun]) -> None:
        """Ask the engine which of these runs have ended. Those that should have are ended now."""
        if not due:
            return
        for run in due:
            self._postpone(run, engine.poll_interval_s(run.age_s))
        ends = await self._try("check", engine.name, engine.check([run for run in due if run.task])) or {}
        late = {run.run_id: RunEnd("overdue") for run in due if run.overdue}
        for run_id, end in {**late, **ends}.items():
            await self._try("end", run_id, self._end(engine.name, run_id, end))

    async def _give_up_unreachable(self, run: WatchedRun) -> None:
        """End a run whose engine no worker has any more, and forget it once its turn has."""
        if run.settled:
            await self._runs.remove(run.run_id)
        elif run.ended_as is None:
            end = RunEnd("overdue", f"The engine {run.engine} is not configured any more.")
            await self._end(run.engine, run.run_id, end)

    async def _remove(self, engine: DetachedEngine, run: WatchedRun) -> None:
        self._postpone(run, AGAIN_S)
        if run.ended_as in (None, "overdue"):
            await engine.stop(run.run_id, run.task)
        await engine.discard(run)
        await self._runs.remove(run.run_id)

    async def _end(self, engine: str, run_id: str, end: RunEnd) -> None:
        ring = await self._runs.end(run_id, end.ended_as, end.detail)
        DETACHED_RUNS_ENDED.labels(engine, end.ended_as).inc()
        _log.info("Detached run has ended", run_id=run_id, ended_as=end.ended_as)
        if ring is not None:
            # A lost doorbell is rung again by the sweeper.
            await self._doorbells.ring(ring.lane, ring.conversation_id)

    async def _try(self, step: str, of: str, work: Awaitable[T]) -> T | None:
        """What the work returns; None if it failed, which holds up nothing else."""
        with guarded("detached_run", passing=(EverturnError, TimeoutError)):
            try:
                async with asyncio.timeout(STEP_LIMIT_S):
                    return await work
            except (EverturnError, TimeoutError) as error:
                DETACHED_RUNS_FAILED.inc()
                _log.warning(
                    "A step of a detached run failed", step=step, of=of, error=str(error) or "no answer in time"
                )
        return None


def _goes_on(run: WatchedRun) -> bool:
    """Whether the engine is asked about it. A run without a task is started by its turn, unless that takes too long."""
    return run.ended_as is None and not run.settled and (bool(run.task) or run.overdue)
