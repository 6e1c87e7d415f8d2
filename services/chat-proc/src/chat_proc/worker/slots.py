"""How many turns a worker runs at once, and a way to run a suspect turn alone.

Beyond its ordinary slots a worker has some extra ones. They are never filled by whoever comes first: the claim rule
keeps them for users that have nothing running, and lends them in place of slots whose turns make no progress.
"""

import asyncio

from everturn.telemetry.metrics import WORKER_SLOTS, WORKER_TURNS

ALONE_WAIT_S = 60.0
"""How long a suspect turn waits for the worker's other turns to end before it runs beside them after all."""


class Slots:
    """Counts running turns. A turn that may kill its worker runs alone and takes no other down."""

    def __init__(self, count: int, *, extra: int = 0, alone_wait_s: float = ALONE_WAIT_S) -> None:
        self._count = count
        self._extra = extra
        WORKER_SLOTS.set(count)
        self._alone_wait_s = alone_wait_s
        self._running = 0
        self._alone = 0
        self._waiting = 0
        self._changed = asyncio.Event()

    @property
    def running(self) -> int:
        return self._running

    @property
    def is_extra_free(self) -> bool:
        """Whether all ordinary slots are taken and an extra one is not."""
        return self._count <= self._running < self._count + self._extra and not self._alone

    @property
    def beyond(self) -> int:
        """How many turns run beyond the ordinary slots."""
        return max(0, self._running - self._count)

    def take(self) -> None:
        """Occupy a slot; a control claim may go over the count."""
        self._running += 1
        WORKER_TURNS.set(self._running)

    def give_back(self) -> None:
        self._running -= 1
        WORKER_TURNS.set(self._running)
        self._changed.set()

    async def wait_free(self) -> None:
        """Return once an ordinary slot is free and nobody runs alone."""
        while self._running >= self._count or self._alone:
            self._changed.clear()
            await self._changed.wait()

    async def wait_alone(self) -> None:
        """Keep others out until `end_alone`, and let those that run end, within the time there is.

        A wait that is cancelled has kept nobody out.
        """
        self._alone += 1
        self._waiting += 1
        try:
            async with asyncio.timeout(self._alone_wait_s):
                # Suspects that wait as well hold slots but don't run: one of them goes first, the others wait for it.
                while self._running > self._waiting:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
        except asyncio.CancelledError:
            self.end_alone()
            raise
        finally:
            self._waiting -= 1

    def end_alone(self) -> None:
        self._alone -= 1
        self._changed.set()
