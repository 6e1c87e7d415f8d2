"""Token buckets in memory."""

import time
from collections.abc import Callable

from everturn.core.errors import Unavailable
from everturn.limits.token_buckets import BucketTable, Draw, Level, Limit


class MemoryTokenBuckets:
    """Implements TokenBuckets. While `down` every call raises Unavailable."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.down = False
        self.asked = 0
        self._table = BucketTable(monotonic=monotonic)

    async def draw(self, key: str, limit: Limit) -> Draw:
        self._check()
        return self._table.draw(key, limit)

    async def give_back(self, key: str, limit: Limit) -> Level:
        self._check()
        return self._table.give_back(key, limit)

    def _check(self) -> None:
        self.asked += 1
        if self.down:
            raise Unavailable("The buckets are down.")
