"""Token buckets in memory."""

import time
from collections.abc import Callable

from everturn.errors import Unavailable
from everturn.model.limits.bucket_table import BucketTable
from everturn.model.limits.token_bucket import Draw, Limit


class MemoryTokenBuckets:
    """Implements TokenBuckets. While `down` every call raises Unavailable."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.down = False
        self.asked = 0
        self._table = BucketTable(monotonic=monotonic)

    async def draw(self, key: str, limit: Limit) -> Draw:
        self.asked += 1
        if self.down:
            raise Unavailable("The buckets are down.")
        return self._table.draw(key, limit)
