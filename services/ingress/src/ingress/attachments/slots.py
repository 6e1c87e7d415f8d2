"""A few works at once, a few that wait, and a refusal for all beyond."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from everturn.errors import Unavailable


class WorkSlots:
    """`at_once` work, `waiting` wait; whoever comes then is told `why`."""

    def __init__(self, at_once: int, waiting: int, why: str) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._inside = 0
        self._why = why

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None]:
        """A slot for as long as the block runs. Raises Unavailable when too many wait."""
        if self._inside >= self._most:
            raise Unavailable(self._why)
        self._inside += 1
        try:
            async with self._free:
                yield
        finally:
            self._inside -= 1
