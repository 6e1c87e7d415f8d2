"""Doorbells in memory and in Redis keep one contract; without a server they are Unavailable."""

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.queue.redis import RedisDoorbells
from everturn.wire import Wire, open_wire
from everturn_testing.core import SequentialIds
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.queue.doorbells_contract import DoorbellsContract


class TestRedisDoorbells(DoorbellsContract):
    @pytest.fixture
    def doorbells(self, wire: Wire) -> RedisDoorbells:
        return wire.doorbells


async def test_without_a_server_every_call_is_unavailable() -> None:
    async with open_wire("redis://127.0.0.1:1/0", name="test") as wire:
        with pytest.raises(Unavailable):
            await wire.doorbells.check(limit_s=2)
        with pytest.raises(Unavailable):
            await wire.doorbells.ring(Lane.PAID, SequentialIds().conversation())
        with pytest.raises(Unavailable):
            await wire.doorbells.next_ring((Lane.PAID,), timeout_s=1)


class TestMemoryDoorbells(DoorbellsContract):
    @pytest.fixture
    def doorbells(self) -> MemoryDoorbells:
        return MemoryDoorbells()


async def test_while_down_a_check_fails() -> None:
    doorbells = MemoryDoorbells()
    doorbells.down = True

    with pytest.raises(Unavailable):
        await doorbells.check(limit_s=2)
