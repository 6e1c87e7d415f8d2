"""Presence of workers in memory."""

import time
from collections.abc import Callable

from everturn.core.errors import Unavailable
from everturn.queue.model import MAX_WORKERS, WorkerPresence


class MemoryPresences:
    """Implements Presences. While `down` every call raises Unavailable."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.down = False
        self._monotonic = monotonic
        self._kept: dict[str, tuple[WorkerPresence, float]] = {}

    async def save(self, presence: WorkerPresence, *, ttl_s: float) -> None:
        self._check()
        self._kept.pop(presence.worker_id, None)
        self._kept[presence.worker_id] = presence, self._monotonic() + ttl_s

    async def load_all(self) -> tuple[WorkerPresence, ...]:
        self._check()
        there = [presence for presence, until in self._kept.values() if until > self._monotonic()]
        return tuple(sorted(there[-MAX_WORKERS:], key=lambda presence: presence.worker_id))

    def _check(self) -> None:
        if self.down:
            raise Unavailable("Redis is down.")
