"""Doorbells in memory."""

import asyncio
from collections import deque
from collections.abc import Sequence

from everturn.errors import Unavailable
from everturn.model.identity import Lane
from everturn.model.ids import ConversationId


class MemoryDoorbells:
    """Implements Doorbells. While `down` every call raises Unavailable."""

    def __init__(self) -> None:
        self.down = False
        self._lanes: dict[Lane, deque[ConversationId]] = {lane: deque() for lane in Lane}
        self._rung = asyncio.Condition()

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        await self.check()
        async with self._rung:
            self._lanes[lane].append(conversation_id)
            self._rung.notify_all()

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        await self.check()
        try:
            async with asyncio.timeout(timeout_s), self._rung:
                await self._rung.wait_for(lambda: any(self._lanes[lane] for lane in lanes))
                return next(self._lanes[lane].popleft() for lane in lanes if self._lanes[lane])
        except TimeoutError:
            return None

    async def depth(self) -> int:
        await self.check()
        return sum(len(ids) for ids in self._lanes.values())

    async def check(self) -> None:
        if self.down:
            raise Unavailable("The doorbells are down.")
