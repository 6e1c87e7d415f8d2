"""Doorbells in memory."""

import asyncio
from collections import deque
from collections.abc import Sequence

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.core.ids import ConversationId


class MemoryDoorbells:
    """Implements Doorbells. While `down` every call raises Unavailable, and while `out_of_memory` those that write."""

    def __init__(self) -> None:
        self.down = False
        self.out_of_memory = False
        self._lanes: dict[Lane, deque[ConversationId]] = {lane: deque() for lane in Lane}
        self._rung = asyncio.Condition()

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        self._check_up()
        async with self._rung:
            self._lanes[lane].append(conversation_id)
            self._rung.notify_all()

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        self._check_up()
        try:
            async with asyncio.timeout(timeout_s), self._rung:
                await self._rung.wait_for(lambda: any(self._lanes[lane] for lane in lanes))
                return next(self._lanes[lane].popleft() for lane in lanes if self._lanes[lane])
        except TimeoutError:
            return None

    async def check(self, *, limit_s: float, writing: bool = False) -> None:
        self._check_up()
        if writing and self.out_of_memory:
            raise Unavailable("The doorbells are out of memory.")

    def _check_up(self) -> None:
        if self.down:
            raise Unavailable("The doorbells are down.")
