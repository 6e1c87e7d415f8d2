"""Doorbells in memory and in Redis keep one contract; without a server they are Unavailable."""

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.queue.redis import RedisDoorbells
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_testing.core import SequentialIds
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.queue.doorbells_contract import DoorbellsContract


class TestRedisDoorbells(DoorbellsContract):
    @pytest.fixture
    def doorbells(self, redis_drivers: RedisDrivers) -> RedisDoorbells:
        return redis_drivers.doorbells


async def test_without_a_server_every_call_is_unavailable() -> None:
    async with open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        with pytest.raises(Unavailable):
            await redis_drivers.doorbells.check(limit_s=2)
        with pytest.raises(Unavailable):
            await redis_drivers.doorbells.ring(Lane.PAID, SequentialIds().conversation())
        with pytest.raises(Unavailable):
            await redis_drivers.doorbells.next_ring((Lane.PAID,), timeout_s=1)


class TestMemoryDoorbells(DoorbellsContract):
    @pytest.fixture
    def doorbells(self) -> MemoryDoorbells:
        return MemoryDoorbells()


async def test_while_down_a_check_fails() -> None:
    doorbells = MemoryDoorbells()
    doorbells.down = True

    with pytest.raises(Unavailable):
        await doorbells.check(limit_s=2)
