"""One read for many who want the same: whoever asks gets a value that was read after it asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class SharedRead(Generic[Value]):
    """At most one read runs at a time; those who came while it ran share the next one."""

    def __init__(self, read: Callable[[], Awaitable[Value]]) -> None:
        self._read = read
        self._lock = asyncio.Lock()
        self._begun = 0
        self._kept: tuple[int, Value] | None = None
        self._waiting = 0

    async def get(self) -> Value:
        """The value; errors of the read go to the one who runs it, and the next one tries again."""
        asked_at = self._begun
        self._waiting += 1
        try:
            async with self._lock:
                return await self._get_locked(asked_at)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._kept = None

    async def _get_locked(self, asked_at: int) -> Value:
        if self._kept and self._kept[0] > asked_at:
            return self._kept[1]
        self._begun += 1
        number = self._begun
        value = await self._read()
        self._kept = (number, value)
        return value
