"""Doorbells as Redis lists, one for each lane: `turns:<lane>` holds conversation ids, oldest first."""

from collections.abc import Sequence
from typing import Any, cast

from redis.asyncio import Redis

from everturn.model.identity import Lane
from everturn.model.ids import ConversationId
from everturn.redis.calls import GRACE_S, RING_LIMIT_S, limited


class RedisDoorbells:
    """A wait keeps a connection of the client busy."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        async with limited(RING_LIMIT_S):
            await self._client.rpush(_key(lane), conversation_id)

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        async with limited(timeout_s + GRACE_S):
            reply = await self._client.execute_command("BLMPOP", timeout_s, len(lanes), *map(_key, lanes), "LEFT")
        return None if reply is None else ConversationId(cast(bytes, reply[1][0]).decode())

    async def check(self, *, limit_s: float) -> None:
        async with limited(limit_s):
            await self._client.ping()


def _key(lane: Lane) -> str:
    return f"turns:{lane.value}"
