"""Bounded waits for output or effects of another process."""

import asyncio
import select
from collections.abc import Callable
from typing import IO

UNTIL_LIMIT_S = 60.0
_POLL_EVERY_S = 0.05


def read_line(pipe: IO[bytes], limit_s: float) -> bytes:
    """The first line of a process, which is written at once; empty at its end. Raises TimeoutError."""
    if not select.select([pipe], [], [], limit_s)[0]:
        raise TimeoutError(f"it printed nothing within {limit_s:g} s")
    return pipe.readline()


async def wait_until(done: Callable[[], object]) -> None:
    """Poll in a thread. Raises TimeoutError after a minute."""
    async with asyncio.timeout(UNTIL_LIMIT_S):
        while not await asyncio.to_thread(done):  # noqa: ASYNC110 - for what sends no notification
            await asyncio.sleep(_POLL_EVERY_S)
