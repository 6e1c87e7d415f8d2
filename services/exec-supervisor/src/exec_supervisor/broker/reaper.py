"""Removes containers and volumes that dead brokers, or an unavailable engine, have left behind."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from exec_supervisor.broker.bodies import LABEL_BROKER, LABEL_EXPIRES, LABEL_PAIR
from exec_supervisor.broker.docker_engine import Engine, EngineDown, EngineRefused, LabeledObject, NotThere
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
        engine: Engine,
        pairs: Pairs,
        metrics: BrokerMetrics,
        broker_id: str,
        *,
        connected: asyncio.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._pairs = pairs
        self._metrics = metrics
        self._broker_id = broker_id
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
        found = await self._engine.load_labeled(LABEL_BROKER)
        # Read the names after the listing: a pair is registered before its first container is created.
        orphans = find_orphans(found, self._broker_id, self._pairs.names, self._clock())
        removed = [await self._remove(orphan) for orphan in sorted(orphans, key=lambda entry: entry.is_volume)]
        return all(removed)

    async def _remove(self, orphan: LabeledObject) -> bool:
        try:
            if orphan.is_volume:
                await self._engine.remove_volume(orphan.name)
            else:
                await self._engine.kill_and_remove(orphan.name)
        except NotThere:
            return True
        except EngineRefused as error:
            # One that the engine can't remove must not prevent the removal of the others.
            _log.warning("Could not remove an orphaned resource", name=orphan.name, detail=str(error))
            return False
        self._metrics.reaped.labels("volume" if orphan.is_volume else "container").inc()
        _log.warning("Removed an orphaned resource", name=orphan.name)
        return True


def find_orphans(
    found: Iterable[LabeledObject], broker_id: str, live: frozenset[str], now_s: float
) -> list[LabeledObject]:
    """Find the orphans: this broker's leftovers without a live pair, and anybody's expired ones.

    Only one broker at a time has an id, so an unknown pair with this id belongs to a dead predecessor.
    """
    return [
        entry
        for entry in found
        if (entry.labels.get(LABEL_BROKER) == broker_id and entry.labels.get(LABEL_PAIR) not in live)
        or now_s >= _read_expiry(entry)
    ]


def _read_expiry(entry: LabeledObject) -> float:
    text = entry.labels.get(LABEL_EXPIRES, "")
    return int(text) if text.isdigit() else 0
