"""The rooms in memory keep the contract that Redis keeps, and can be down."""

import pytest

from everturn.core.errors import Unavailable
from everturn.limits.waiting_rooms import RoomLoad, Visitor
from everturn_testing.limits.waiting_rooms import MemoryWaitingRooms
from everturn_testing.limits.waiting_rooms_contract import SharedRoomsContract, WaitingRoomsContract


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
