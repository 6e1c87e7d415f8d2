"""Waiting rooms in memory and in Redis keep one contract; without a server, or with a full one, nobody enters."""

from collections.abc import AsyncIterator

import pytest

from everturn.core.errors import Unavailable
from everturn.limits.redis import RedisWaitingRooms
from everturn.limits.waiting_rooms import RoomLoad, Visitor
from everturn.redis.calls import build_client
from everturn.wire import Wire, open_wire
from everturn_testing.limits.waiting_rooms import MemoryWaitingRooms
from everturn_testing.limits.waiting_rooms_contract import SharedRoomsContract, WaitingRoomsContract


class TestRedisWaitingRooms(WaitingRoomsContract, SharedRoomsContract):
    @pytest.fixture
    def rooms(self, wire: Wire) -> RedisWaitingRooms:
        return wire.waiting_rooms

    @pytest.fixture
    async def twin(self, redis_url: str) -> AsyncIterator[RedisWaitingRooms]:
        async with open_wire(redis_url, name="test") as opened:
            yield opened.waiting_rooms


async def test_without_a_server_nobody_is_let_in() -> None:
    async with open_wire("redis://127.0.0.1:1/0", name="test") as wire:
        with pytest.raises(Unavailable):
            await wire.waiting_rooms.enter("r", Visitor("c"), RoomLoad(0, 10, 1))


async def test_a_server_out_of_memory_lets_nobody_in(wire: Wire, redis_url: str) -> None:
    client = build_client(redis_url, name="other")
    await wire.waiting_rooms.enter("r", Visitor("c"), RoomLoad(0, 10, 1))
    await client.config_set("maxmemory", "1")
    try:
        with pytest.raises(Unavailable):
            await wire.waiting_rooms.enter("r", Visitor("c"), RoomLoad(0, 10, 1))
    finally:
        await client.config_set("maxmemory", "0")
        await client.aclose()
        await client.connection_pool.disconnect()


class TestMemoryWaitingRooms(WaitingRoomsContract, SharedRoomsContract):
    @pytest.fixture
    def rooms(self) -> MemoryWaitingRooms:
        return MemoryWaitingRooms()

    @pytest.fixture
    def twin(self, rooms: MemoryWaitingRooms) -> MemoryWaitingRooms:
        return MemoryWaitingRooms(beside=rooms)


async def test_while_down_nobody_is_let_in() -> None:
    rooms = MemoryWaitingRooms()
    rooms.down = True

    with pytest.raises(Unavailable):
        await rooms.enter("r", Visitor("c"), RoomLoad(0, 10, 1))
