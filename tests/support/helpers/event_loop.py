"""How long an event loop is held."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Watch:
    """`longest_s` is the longest time of the processor for which this thread did not come back to its event loop. That
    of other threads and processes doesn't count, so a busy machine changes nothing."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        before_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            self.longest_s, before_s = max(self.longest_s, now_s - before_s), now_s


@asynccontextmanager
async def watch_loop() -> AsyncIterator[Watch]:
    """Watch the event loop inside the context."""
    watch = Watch()
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    try:
        yield watch
        await asyncio.sleep(0)
    finally:
        watching.cancel()
