"""Removes the events of ended turns from Redis, and measures how much of its memory is used."""

import asyncio

import structlog

from everturn.core.errors import Unavailable
from everturn.core.metrics import REDIS_MEMORY, STREAMS_TRIMMED
from everturn.events.stream import StreamMemory

_log = structlog.get_logger(__name__)

TRIM_EVERY_S = 10.0


class StreamTrimmer:
    """Runs in every worker; they share the work, since each end is handled once."""

    def __init__(self, memory: StreamMemory, *, every_s: float = TRIM_EVERY_S) -> None:
        self._memory = memory
        self._every_s = every_s

    async def run(self) -> None:
        """Trim until cancelled."""
        while True:
            await self.trim()
            await asyncio.sleep(self._every_s)

    async def trim(self) -> None:
        """One pass; logs a warning if Redis is unavailable."""
        try:
            STREAMS_TRIMMED.inc(await self._memory.trim_ended())
            use = await self._memory.load_use()
        except Unavailable as error:
            _log.warning("Could not trim the event streams", error=str(error))
            return
        REDIS_MEMORY.labels("used").set(use.used)
        REDIS_MEMORY.labels("limit").set(use.limit)
