"""A room that tells everybody the same time breaks the contract."""

import pytest

from everturn.limits.waiting_rooms import Entry, RoomLoad, Visitor
from everturn_testing.limits.waiting_rooms import MemoryWaitingRooms
from everturn_testing.limits.waiting_rooms_contract import WaitingRoomsContract


class Crowd(MemoryWaitingRooms):
    async def enter(self, room: str, visitor: Visitor, load: RoomLoad) -> Entry:
        return Entry(False, 60)


async def test_one_time_for_all_is_noticed() -> None:
    with pytest.raises(AssertionError):
        await WaitingRoomsContract().test_in_a_full_room_each_is_told_a_time_of_its_own(Crowd())
