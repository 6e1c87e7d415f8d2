"""Presences in memory and in Redis keep one contract; without a server they are Unavailable."""

import pytest

from everturn.core.errors import Unavailable
from everturn.queue.model import WorkerPresence
from everturn.queue.redis import RedisPresences
from everturn.redis.calls import build_client
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_testing.queue.presences import MemoryPresences
from everturn_testing.queue.presences_contract import PresencesContract

ONE = WorkerPresence("w", "bubblewrap", None, 4)


class TestRedisPresences(PresencesContract):
    @pytest.fixture
    def presences(self, redis_drivers: RedisDrivers) -> RedisPresences:
        return redis_drivers.presences


async def test_an_unreadable_presence_hides_no_other_worker(redis_drivers: RedisDrivers, redis_url: str) -> None:
    client = build_client(redis_url, name="other")
    await redis_drivers.presences.save(ONE, ttl_s=600)
    await client.set("worker:x", "{}")
    await client.zadd("workers", {"x": 1})

    assert await redis_drivers.presences.load_all() == (ONE,)
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_without_a_server_every_call_is_unavailable() -> None:
    async with open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        with pytest.raises(Unavailable):
            await redis_drivers.presences.save(ONE, ttl_s=1)
        with pytest.raises(Unavailable):
            await redis_drivers.presences.load_all()


class TestMemoryPresences(PresencesContract):
    @pytest.fixture
    def presences(self) -> MemoryPresences:
        return MemoryPresences()


async def test_while_down_no_worker_is_listed() -> None:
    presences = MemoryPresences()
    presences.down = True

    with pytest.raises(Unavailable):
        await presences.load_all()
