"""Tells that this worker is there, and what it runs programs in. Nobody waits for it and nothing depends on it."""

import asyncio
from typing import Final

import structlog

from everturn.errors import Unavailable
from everturn.ports.runs.presences import Presences, WorkerPresence

EVERY_S: Final = 5.0
"""Between two renewals, and the most that one may take."""
RENEWALS_PER_TTL: Final = 3

_log = structlog.get_logger(__name__)


class PresenceTask:
    """Renews what is told of one worker; `run` is a task of its own."""

    def __init__(self, presences: Presences, own: WorkerPresence, *, every_s: float = EVERY_S) -> None:
        self._presences = presences
        self._own = own
        self._every_s = every_s

    async def run(self) -> None:
        """Renew until cancelled. Afterwards it is forgotten within 15 s."""
        while True:
            await self.renew()
            await asyncio.sleep(self._every_s)

    async def renew(self) -> None:
        """Once; a wire that is away is told of in the log."""
        try:
            async with asyncio.timeout(self._every_s):
                await self._presences.save(self._own, ttl_s=RENEWALS_PER_TTL * self._every_s)
        except (Unavailable, TimeoutError) as error:
            _log.warning("presence_not_renewed", error=str(error))
