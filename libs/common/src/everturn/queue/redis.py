"""Doorbells as Redis lists, one for each lane (`turns:<lane>` holds conversation ids, oldest first), and the
presence of workers."""

import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, cast

import structlog
from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis

from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.queue.model import MAX_WORKERS, WorkerPresence
from everturn.redis.calls import CALL_LIMIT_S, GRACE_S, PUBLISH_LIMIT_S, RING_LIMIT_S, limited

_log = structlog.get_logger(__name__)

PROBE, PROBE_S = "turns:probe", 60
"""A key that is only written, to learn whether the server stores anything."""

_INDEX: Final = "workers"
_PRESENCE: Final = TypeAdapter(WorkerPresence)


class RedisDoorbells:
    """A wait occupies a connection of the client."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        async with limited(RING_LIMIT_S):
            await self._client.execute_command(*doorbell_command(lane, conversation_id))

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        async with limited(timeout_s + GRACE_S):
            reply = await self._client.execute_command("BLMPOP", timeout_s, len(lanes), *map(_lane_key, lanes), "LEFT")
        return None if reply is None else ConversationId(cast(bytes, reply[1][0]).decode())

    async def check(self, *, limit_s: float, writing: bool = False) -> None:
        async with limited(limit_s):
            await (self._client.set(PROBE, "1", ex=PROBE_S) if writing else self._client.ping())


def doorbell_command(lane: Lane, conversation_id: ConversationId) -> tuple[str, str, str]:
    """The Redis command that rings a doorbell."""
    return "RPUSH", _lane_key(lane), conversation_id


def _lane_key(lane: Lane) -> str:
    return f"turns:{lane.value}"


class RedisPresences:
    """`worker:<id>` expires with the worker, and the sorted set `workers` lists the ids. The set is cut by rank and can
    contain expired workers; only those with a key are present.

    Reading lasts at most 250 ms, because accepting a message waits for it; saving at most 2 s.

    `now` only orders workers by their last renewal; it expires none of them.
    """

    def __init__(self, client: Redis, *, now: Callable[[], float] = time.time) -> None:
        self._client: Any = client
        self._now = now

    async def save(self, presence: WorkerPresence, *, ttl_s: float) -> None:
        ttl_ms = max(1, round(ttl_s * 1000))
        async with limited(PUBLISH_LIMIT_S), self._client.pipeline(transaction=True) as pipeline:
            pipeline.set(_presence_key(presence.worker_id), _PRESENCE.dump_json(presence), px=ttl_ms)
            pipeline.zadd(_INDEX, {presence.worker_id: self._now()})
            pipeline.zremrangebyrank(_INDEX, 0, -MAX_WORKERS - 1)
            await pipeline.execute()

    async def load_all(self) -> tuple[WorkerPresence, ...]:
        async with limited(CALL_LIMIT_S):
            ids: list[bytes] = await self._client.zrange(_INDEX, -MAX_WORKERS, -1)
            kept: list[bytes | None] = (
                await self._client.mget([_presence_key(one.decode()) for one in ids]) if ids else []
            )
        found = [presence for text in kept if text is not None and (presence := _try_parse(text))]
        return tuple(sorted(found, key=attrgetter("worker_id")))


def _try_parse(text: bytes) -> WorkerPresence | None:
    """None for the text of a worker of an incompatible version: the others are still reported."""
    try:
        return _PRESENCE.validate_json(text, extra="ignore")
    except ValidationError as error:
        _log.warning("Could not parse the presence of a worker", problems=error.error_count())
        return None


def _presence_key(worker_id: str) -> str:
    return f"worker:{worker_id}"
