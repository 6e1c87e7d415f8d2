"""An answer that costs something to find, found for all who ask at about the same time."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")


class Kept(Generic[Found]):
    """Owns the last answer. One look at a time, and none while the answer is at most `keep_s` seconds old."""

    def __init__(self, look: Callable[[], Awaitable[Found]], *, keep_s: float, monotonic: Callable[[], float]) -> None:
        self._look = look
        self._keep_s = keep_s
        self._monotonic = monotonic
        self._looked_at = -math.inf
        self._found: Found | None = None
        self._looking = asyncio.Lock()

    async def load(self) -> Found:
        """The answer. A look that fails is nobody else's: the next who asks looks again."""
        async with self._looking:
            found = self._found
            if found is None or self._monotonic() - self._looked_at > self._keep_s:
                found = self._found = await self._look()
                self._looked_at = self._monotonic()
            return found
