"""Lets other tasks of the event loop run while the events of a reply are read."""

import asyncio
import time
from collections.abc import Callable

MAX_HELD_S = 0.005
"""How long a task may hold the event loop, which runs the other turns of the worker and its heartbeat."""


class TimeSlice:
    """The time for which a task holds the event loop, although what it waits for is always there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()

    async def give_way(self) -> None:
        """Let other tasks run if MAX_HELD_S are over."""
        if self._clock() - self._began_s > MAX_HELD_S:
            await asyncio.sleep(0)
            self._began_s = self._clock()
