"""Finds what nobody works on: turns whose doorbell was lost, turns of dead workers, ends nobody announced."""

import asyncio

import structlog

from everturn.errors import Unavailable
from everturn.ports.clock import Clock
from everturn.ports.doorbells import Doorbells
from everturn.ports.sweeps import Sweeps
from everturn.telemetry.guarded import guarded
from everturn.telemetry.metrics import SWEEPS, SWEPT

_log = structlog.get_logger(__name__)

SWEEP_EVERY_S = 2.0
CHECK_LIMIT_S = 2.0
"""Everybody relies on the sweeper, so a busy wire gets time."""


class Sweeper:
    """Rings doorbells again. It takes nothing itself: a claim decides, under the lease."""

    def __init__(self, sweeps: Sweeps, doorbells: Doorbells, clock: Clock, *, lease_s: float) -> None:
        self._sweeps = sweeps
        self._doorbells = doorbells
        self._clock = clock
        self._settle_s = lease_s
        self._linked_since: float | None = None

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            with guarded("sweeper_pass") as guard:
                await self.sweep()
            if guard.error is not None:
                SWEEPS.labels("failed").inc()
            await asyncio.sleep(SWEEP_EVERY_S)

    async def sweep(self) -> None:
        """One pass. After the database was out of reach it waits a lease's time, so that holders can renew first.

        What is due is marked as rung, and waits the longer the more often that was; so nothing is asked for while
        the wire can't carry it.
        """
        try:
            await self._doorbells.check(limit_s=CHECK_LIMIT_S)
            rings = await self._sweeps.due_doorbells(takeovers=self._settled())
            if self._linked_since is None:
                self._linked_since = self._clock.monotonic()
        except Unavailable as error:
            # Without the wire the database was not seen either.
            self._linked_since = None
            SWEEPS.labels("failed").inc()
            _log.warning("sweep_failed", error=str(error))
            return
        try:
            for ring in rings:
                await self._doorbells.ring(ring.lane, ring.conversation_id)
                SWEPT.inc()
            SWEEPS.labels("ok").inc()
        except Unavailable as error:
            SWEEPS.labels("failed").inc()
            _log.warning("sweep_rings_failed", error=str(error))

    def _settled(self) -> bool:
        return self._linked_since is not None and self._clock.monotonic() - self._linked_since >= self._settle_s
