"""Publishes that this worker is there, what it runs programs in, and how long its turns take; and reads how many slots
all workers have together. Nothing waits for it."""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from chat_proc.worker.pace import Pace
from everturn.errors import Unavailable
from everturn.ports.runs.presences import Presences, WorkerPresence
from everturn.telemetry.guarded import guarded

EVERY_S: Final = 5.0
"""Between two renewals, and the most that one may take."""
RENEWALS_PER_TTL: Final = 3

_log = structlog.get_logger(__name__)


class PresenceTask:
    """Renews what is told of one worker; `run` is a task of its own."""

    def __init__(self, presences: Presences, own: WorkerPresence, pace: Pace, *, every_s: float = EVERY_S) -> None:
        self._presences = presences
        self._own = own
        self._pace = pace
        self._every_s = every_s
        self._slots, self._extra_slots = own.slots, own.extra_slots

    @property
    def slots(self) -> tuple[int, int]:
        """Ordinary and extra slots of all workers, as far as this one knows: at least its own."""
        return self._slots, self._extra_slots

    async def run(self) -> None:
        """Renew until cancelled. Afterwards it is forgotten within 15 s."""
        while True:
            with guarded("presence_renewal"):
                await self.renew()
            await asyncio.sleep(self._every_s)

    async def renew(self) -> None:
        """Once; a wire that is away is told of in the log."""
        try:
            async with asyncio.timeout(self._every_s):
                own = replace(self._own, turn_s=self._pace.turn_s)
                await self._presences.save(own, ttl_s=RENEWALS_PER_TTL * self._every_s)
                fleet = await self._presences.load_all()
        except (Unavailable, TimeoutError) as error:
            _log.warning("presence_not_renewed", error=str(error))
            return
        self._slots = max(own.slots, sum(worker.slots for worker in fleet))
        self._extra_slots = max(own.extra_slots, sum(worker.extra_slots for worker in fleet))
