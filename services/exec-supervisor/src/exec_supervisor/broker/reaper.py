"""Removes what is left of pairs after a broker has died or an engine was unavailable."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from exec_supervisor.broker.engine import EngineDown, EngineRefused, Leftover, PairEngine
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.pairs import Pairs

_log = structlog.stdlib.get_logger()

EVERY_S: Final = 30.0
AGAIN_S: Final = 2.0
"""Seconds until the next attempt after the engine was unavailable or something was still in use."""


class Reaper:
    """Sweeps at start, every half minute, and when the engine is available again, until cancelled."""

    def __init__(
        self,
        engine: PairEngine,
        pairs: Pairs,
        metrics: BrokerMetrics,
        *,
        connected: asyncio.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._pairs = pairs
        self._metrics = metrics
        self._connected = connected
        self._clock = clock

    async def run(self) -> None:
        while True:
            self._connected.clear()
            clean = await self._try_sweep()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S if clean else AGAIN_S):
                    await self._connected.wait()

    async def _try_sweep(self) -> bool:
        try:
            return await self.sweep()
        except (EngineDown, EngineRefused) as error:
            _log.warning("Could not sweep for orphaned resources", detail=str(error))
            return False

    async def sweep(self) -> bool:
        """End expired pairs and remove orphans; false when something is still in use. Raises EngineDown."""
        self._pairs.end_expired()
        found = await self._engine.load_leftovers()
        # Read the names after the listing: a pair is registered before anything of it is created.
        removed = [await self._remove(orphan) for orphan in find_orphans(found, self._pairs.names, self._clock())]
        return all(removed)

    async def _remove(self, orphan: Leftover) -> bool:
        try:
            if not await self._engine.remove_leftover(orphan):
                return True
        except EngineRefused as error:
            # One that the engine can't remove must not prevent the removal of the others.
            _log.warning("Could not remove an orphaned resource", name=orphan.name, detail=str(error))
            return False
        self._metrics.reaped.labels(orphan.kind).inc()
        _log.warning("Removed an orphaned resource", name=orphan.name)
        return True


def find_orphans(found: Iterable[Leftover], live: frozenset[str], now_s: float) -> list[Leftover]:
    """Find the orphans: this broker's leftovers without a live pair, and those of any broker that have expired.

    Only one broker at a time has an id, so an unknown pair with this id belongs to a dead predecessor.
    """
    return [entry for entry in found if (entry.is_own and entry.pair not in live) or now_s >= entry.expires_s]
