"""A cached result that is expensive to compute, shared by concurrent callers."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")


class TtlCache(Generic[Found]):
    """Owns the last result. One computation at a time, and none while the result is at most `keep_s` seconds old."""

    def __init__(
        self, compute: Callable[[], Awaitable[Found]], *, keep_s: float, monotonic: Callable[[], float]
    ) -> None:
        self._compute = compute
        self._keep_s = keep_s
        self._monotonic = monotonic
        self._computed_at = -math.inf
        self._found: Found | None = None
        self._computing = asyncio.Lock()

    async def load(self) -> Found:
        """The result. If a computation fails, only its caller gets the error; the next caller computes it again."""
        async with self._computing:
            found = self._found
            if found is None or self._monotonic() - self._computed_at > self._keep_s:
                found = self._found = await self._compute()
                self._computed_at = self._monotonic()
            return found
