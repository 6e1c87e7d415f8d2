"""Publishes that this worker is alive, what it can do and how long its turns take; reads the slot count of all
workers."""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from everturn.core.errors import Unavailable
from everturn.core.loops import guarded
from everturn.queue.model import BatteryOutcome, Presences, WorkerPresence

_log = structlog.get_logger(__name__)

EVERY_S: Final = 5.0
"""Interval between two renewals, and the time limit of one."""
RENEWALS_PER_TTL: Final = 3
WEIGHT: Final = 0.1
"""The weight of the newest turn; the last ten make up two thirds of the mean."""


class TurnDurationAverage:
    """The duration of ended turns: a moving average that weights recent turns most."""

    def __init__(self) -> None:
        self._turn_s: float | None = None

    @property
    def turn_s(self) -> float | None:
        """Seconds; None before the first turn has ended."""
        return self._turn_s

    def note(self, seconds: float) -> None:
        """Record the duration of an ended turn."""
        old = seconds if self._turn_s is None else self._turn_s
        self._turn_s = old + WEIGHT * (seconds - old)


class PresenceTask:
    """Renews the presence of one worker; `run` is a task of its own."""

    def __init__(
        self, presences: Presences, own: WorkerPresence, turn_average: TurnDurationAverage, *, every_s: float = EVERY_S
    ) -> None:
        self._presences = presences
        self._own = own
        self._turn_average = turn_average
        self._every_s = every_s
        self._slots, self._extra_slots = own.slots, own.extra_slots

    @property
    def slots(self) -> tuple[int, int]:
        """Ordinary and extra slots of all workers, as far as this one knows: at least its own."""
        return self._slots, self._extra_slots

    def note_battery(self, outcome: BatteryOutcome) -> None:
        """From now on publish the result of a later run of the escape battery."""
        self._own = replace(self._own, battery=outcome)

    async def run(self) -> None:
        """Renew until cancelled. Afterwards the presence expires within 15 s."""
        while True:
            with guarded("presence_renewal"):
                await self.renew()
            await asyncio.sleep(self._every_s)

    async def renew(self) -> None:
        """Renew once; log a warning if Redis is unavailable."""
        try:
            async with asyncio.timeout(self._every_s):
                own = replace(self._own, turn_s=self._turn_average.turn_s)
                await self._presences.save(own, ttl_s=RENEWALS_PER_TTL * self._every_s)
                workers = await self._presences.load_all()
        except (Unavailable, TimeoutError) as error:
            _log.warning("Could not renew the presence of the worker", error=str(error))
            return
        self._slots = max(own.slots, sum(worker.slots for worker in workers))
        self._extra_slots = max(own.extra_slots, sum(worker.extra_slots for worker in workers))
