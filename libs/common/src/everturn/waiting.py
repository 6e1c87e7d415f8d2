"""Waits for somebody else's answer that do not take our own slowness for their silence."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

LOOKS = 5
"""How often it is seen that there is no answer before that counts as silence."""


@asynccontextmanager
async def answered_within(limit_s: float) -> AsyncGenerator[None]:
    """Raises TimeoutError when what is awaited inside has been silent for `limit_s` in which we could hear it.

    A timeout of asyncio is due as soon as an event loop goes on that was held up for longer, although the answer may
    lie there unread. So the limit is spent in parts, each counted once however late its end was noticed: between two
    of them the loop reads what has come. It takes longer than the limit only by as much as this process was held up.
    """
    async with asyncio.timeout(None) as timeout:
        patience = _Patience(timeout, limit_s)
        try:
            yield
        finally:
            patience.end()


class _Patience:
    """Looks several times whether the wait has ended, and ends it at the last look."""

    def __init__(self, timeout: asyncio.Timeout, limit_s: float) -> None:
        self._timeout = timeout
        self._part_s = limit_s / LOOKS
        self._looks = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(self._part_s, self._look)

    def _look(self) -> None:
        self._looks += 1
        if self._looks < LOOKS:
            self._next = self._loop.call_later(self._part_s, self._look)
        else:
            # Due in the next turn of the loop, behind what was read in this one.
            self._timeout.reschedule(self._loop.time())

    def end(self) -> None:
        """The wait is over."""
        self._next.cancel()
