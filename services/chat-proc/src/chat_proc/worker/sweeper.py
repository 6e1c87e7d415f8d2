"""Finds turns whose doorbell or worker was lost, and rings again for them."""

import asyncio

import structlog

from everturn.core.clock import Clock
from everturn.core.errors import Unavailable
from everturn.core.loops import guarded
from everturn.core.metrics import SWEEPS, SWEPT
from everturn.queue.model import Doorbells
from everturn.turns.ports import Sweeps

_log = structlog.get_logger(__name__)

SWEEP_EVERY_S = 2.0
CHECK_LIMIT_S = 2.0
"""Every turn relies on the sweeper, so a busy Redis gets extra time."""


class Sweeper:
    """Rings doorbells again. It claims nothing itself: the claim decides, under the lease."""

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
        """One pass. After a database outage, takeovers wait for one lease duration, so that holders can renew first.

        Due doorbells are marked as rung, with a backoff that grows with each ring; so Redis is checked before they
        are queried.
        """
        try:
            await self._doorbells.check(limit_s=CHECK_LIMIT_S)
            rings = await self._sweeps.claim_due_doorbells(takeovers=self._settled())
            if self._linked_since is None:
                self._linked_since = self._clock.monotonic()
        except Unavailable as error:
            # If Redis failed, the database was not reached either.
            self._linked_since = None
            SWEEPS.labels("failed").inc()
            _log.warning("Could not sweep for waiting turns", error=str(error))
            return
        try:
            for ring in rings:
                await self._doorbells.ring(ring.lane, ring.conversation_id)
                SWEPT.inc()
            SWEEPS.labels("ok").inc()
        except Unavailable as error:
            SWEEPS.labels("failed").inc()
            _log.warning("Could not ring the doorbells found by the sweep", error=str(error))

    def _settled(self) -> bool:
        return self._linked_since is not None and self._clock.monotonic() - self._linked_since >= self._settle_s
