"""Looks after detached runs: wakes turns whose runs have ended, and removes runs that no turn waits for."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from chat_proc.sandbox.detached.port import DetachedEngine, RunEnd
from everturn.core.clock import Clock
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.loops import guarded
from everturn.core.metrics import DETACHED_RUNS, DETACHED_RUNS_ENDED, DETACHED_RUNS_FAILED
from everturn.queue.model import Doorbells
from everturn.turns.detached import DetachedRuns, HeldRun

_log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
"""Between two looks at the rows; engines decide how often they are asked."""
CLOSE_S: Final = 5.0
SWEEP_EVERY_S: Final = 300.0
AT_ONCE: Final = 100
"""Runs that an engine is asked about together."""
T = TypeVar("T")
_STOPPED: Final = "The worker that ran it was stopped."


class RunWatch:
    """Looks after the runs of this worker and of workers that are gone. The rows decide; it only remembers when it last
    asked."""

    def __init__(
        self, runs: DetachedRuns, engines: Mapping[str, DetachedEngine], doorbells: Doorbells, clock: Clock
    ) -> None:
        self._runs = runs
        self._engines = engines
        self._doorbells = doorbells
        self._clock = clock
        self._next_at_s: dict[str, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        sweep_at_s = self._clock.monotonic() + SWEEP_EVERY_S
        while True:
            with guarded("detached_runs"):
                await self.look()
            if self._clock.monotonic() >= sweep_at_s:
                sweep_at_s = self._clock.monotonic() + SWEEP_EVERY_S
                await self.sweep()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """One look at all runs. A run that can't be looked after now is tried again."""
        try:
            held = await self._runs.hold(list(self._engines))
        except Unavailable as error:
            _log.warning("Could not look after detached runs", error=str(error))
            return
        self._next_at_s = {run.run_id: self._next_at_s.get(run.run_id, 0.0) for run in held}
        for name, engine in self._engines.items():
            own = [run for run in held if run.engine == name]
            DETACHED_RUNS.labels(name).set(sum(run.ended_as is None for run in own))
            await self._try("stop", name, self._stop_unknown(engine))
            for run in own:
                if run.settled:
                    await self._try("remove", run.run_id, self._remove(engine, run))
                elif run.ended_as is None and run.overdue:
                    await self._try("end", run.run_id, self._end_overdue(engine, run))
            await self._ask(engine, own)

    async def _stop_unknown(self, engine: DetachedEngine) -> None:
        """Stop kept runs without a row: another worker has started them again, or their conversation was erased."""
        if kept := engine.list_kept():
            known = await self._runs.load_known(kept)
            for run_id in (run_id for run_id in kept if run_id not in known):
                await engine.stop(run_id, run_id)

    async def sweep(self) -> None:
        """Remove what engines keep of runs that have no row any more."""
        for name, engine in self._engines.items():
            await self._try("sweep", name, engine.sweep(self._runs.load_known))

    async def close(self) -> None:
        """Wake the turns whose runs end with this worker, so that others start them again. Whatever is not done within
        CLOSE_S, others find when it stays away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                for name, engine in self._engines.items():
                    for run_id in engine.list_kept():
                        await self._try("end", run_id, self._end(name, run_id, RunEnd("lost", _STOPPED)))
                        await self._try("stop", run_id, engine.stop(run_id, run_id))

    async def _ask(self, engine: DetachedEngine, runs: Sequence[HeldRun]) -> None:
        """Ask the engine which of these runs have ended."""
        now_s = self._clock.monotonic()
        due = [run for run in runs if self._is_due(run, now_s)]
        for first in range(0, len(due), AT_ONCE):
            asked = due[first : first + AT_ONCE]
            for run in asked:
                self._next_at_s[run.run_id] = now_s + engine.look_every_s(run.age_s)
            ends = await self._try("check", engine.name, engine.check(asked)) or {}
            for run_id, end in ends.items():
                await self._try("end", run_id, self._end(engine.name, run_id, end))

    async def _try(self, what: str, of: str, work: Awaitable[T]) -> T | None:
        """What the work returns; None if it failed, which holds up nothing else. The next look tries again."""
        with guarded("detached_run", passing=(EverturnError,)):
            try:
                return await work
            except EverturnError as error:
                DETACHED_RUNS_FAILED.inc()
                _log.warning("Could not look after a detached run", what=what, of=of, error=str(error))
        return None

    def _is_due(self, run: HeldRun, now_s: float) -> bool:
        """Whether the engine is asked about it now. A run without a task is started by its turn."""
        goes_on = run.ended_as is None and not run.settled and not run.overdue
        return goes_on and bool(run.task) and self._next_at_s[run.run_id] <= now_s

    async def _end_overdue(self, engine: DetachedEngine, run: HeldRun) -> None:
        await engine.stop(run.run_id, run.task)
        await self._end(engine.name, run.run_id, RunEnd("overdue"))

    async def _remove(self, engine: DetachedEngine, run: HeldRun) -> None:
        if run.ended_as is None:
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
