"""The contracts of WaitingRooms as tests; a subclass or its module defines the fixtures `rooms` and `twin`.

`twin` are the same rooms in another process.
"""

import asyncio

import pytest

from everturn.limits.token_buckets import SECOND_US
from everturn.limits.waiting_rooms import (
    MAX_AGE_US,
    MAX_WAIT_US,
    PLACES_EACH,
    SPACING,
    STORING_US,
    RoomLoad,
    Visitor,
    WaitingRooms,
)

_FULL = RoomLoad(depth=12, room=10, interval_us=20 * SECOND_US)
_SLACK_S = 15.0
"""The longest time between two calls of a test."""


class WaitingRoomsContract:
    """Required of every WaitingRooms."""

    async def test_with_room_everybody_is_let_in(self, rooms: WaitingRooms) -> None:
        entries = [await rooms.enter("r", Visitor(f"c{n}"), RoomLoad(9, 10, SECOND_US)) for n in range(5)]

        assert all(entry.admitted for entry in entries)

    async def test_in_a_full_room_each_is_told_a_time_of_its_own(self, rooms: WaitingRooms) -> None:
        entries = [await rooms.enter("r", Visitor(f"c{n}"), _FULL) for n in range(3)]

        assert not any(entry.admitted for entry in entries)
        assert [entry.wait_s for entry in entries] == pytest.approx([66, 88, 110], abs=_SLACK_S)

    async def test_one_caller_holds_few_places_and_is_told_the_last_of_them_again(self, rooms: WaitingRooms) -> None:
        load = RoomLoad(depth=10, room=10, interval_us=4 * SECOND_US)
        waits = [(await rooms.enter("r", Visitor("eager"), load)).wait_s for _ in range(PLACES_EACH + 20)]

        assert waits[PLACES_EACH - 1 :] == pytest.approx([4 * SPACING * PLACES_EACH] * 21, abs=_SLACK_S)
        assert (await rooms.enter("r", Visitor("other"), _FULL)).wait_s == pytest.approx(
            waits[-1] + 20 * SPACING, abs=_SLACK_S
        )

    async def test_who_comes_when_told_is_let_in_before_others(self, rooms: WaitingRooms) -> None:
        load = RoomLoad(10, 10, SECOND_US // 5)
        told = await rooms.enter("r", Visitor("told"), load)
        await asyncio.sleep(told.wait_s)

        other = await rooms.enter("r", Visitor("other"), load)
        back = await rooms.enter("r", Visitor("told"), load)
        again = await rooms.enter("r", Visitor("told"), load)

        assert (other.admitted, back.admitted, again.admitted) == (False, True, False)

    async def test_a_place_that_is_due_soon_is_kept_free(self, rooms: WaitingRooms) -> None:
        await rooms.enter("r", Visitor("told"), RoomLoad(10, 10, SECOND_US))

        assert not (await rooms.enter("r", Visitor("other"), RoomLoad(9, 10, SECOND_US))).admitted
        assert (await rooms.enter("r", Visitor("another"), RoomLoad(7, 10, SECOND_US))).admitted

    async def test_far_above_its_room_even_who_comes_when_told_waits_again(self, rooms: WaitingRooms) -> None:
        told = await rooms.enter("r", Visitor("told"), RoomLoad(10, 10, SECOND_US // 10))
        await asyncio.sleep(told.wait_s)

        assert not (await rooms.enter("r", Visitor("told"), RoomLoad(12, 10, SECOND_US))).admitted

    async def test_nobody_is_told_more_than_the_longest_wait(self, rooms: WaitingRooms) -> None:
        entry = await rooms.enter("r", Visitor("c"), RoomLoad(1000, 10, 60 * SECOND_US))

        assert entry.wait_s == pytest.approx(MAX_WAIT_US / SECOND_US)

    async def test_rooms_know_nothing_of_each_other(self, rooms: WaitingRooms) -> None:
        for n in range(3):
            await rooms.enter("r", Visitor(f"c{n}"), _FULL)

        assert (await rooms.enter("other", Visitor("c"), _FULL)).wait_s == pytest.approx(66, abs=_SLACK_S)

    async def test_a_place_belongs_to_the_request_that_was_told(self, rooms: WaitingRooms) -> None:
        load = RoomLoad(10, 10, SECOND_US // 5)
        told = await rooms.enter("r", Visitor("c", "first"), load)
        await asyncio.sleep(told.wait_s)

        nameless = await rooms.enter("r", Visitor("c"), load)
        newcomer = await rooms.enter("r", Visitor("c", "second"), load)
        foreign = await rooms.enter("r", Visitor("d", "first"), load)
        back = await rooms.enter("r", Visitor("c", "first"), load)

        assert [entry.admitted for entry in (nameless, newcomer, foreign, back)] == [False, False, False, True]

    async def test_a_request_that_comes_early_is_told_the_same_time_again(self, rooms: WaitingRooms) -> None:
        waits = [(await rooms.enter("r", Visitor("c", "same"), _FULL)).wait_s for _ in range(3)]
        other = await rooms.enter("r", Visitor("c", "other"), _FULL)

        assert [*waits, other.wait_s] == pytest.approx([66, 66, 66, 88], abs=_SLACK_S)

    async def test_a_place_that_waits_is_not_lost_to_another_request_that_is_let_in(self, rooms: WaitingRooms) -> None:
        empty = RoomLoad(0, 10, SECOND_US)
        for waiting in (Visitor("c", "named"), Visitor("c")):
            await rooms.enter("r", waiting, _FULL)
        let_in = [await rooms.enter("r", new, empty) for new in (Visitor("c", "new"), Visitor("c"))]

        named, last = [await rooms.enter("r", who, _FULL) for who in (Visitor("c", "named"), Visitor("d"))]
        assert all(entry.admitted for entry in let_in)
        assert [named.wait_s, last.wait_s] == pytest.approx([66, 110], abs=_SLACK_S)

    async def test_who_was_told_by_another_room_is_let_in_then_and_nothing_was_kept_free(
        self, rooms: WaitingRooms
    ) -> None:
        told, early = Visitor("c", "told"), Visitor("c", "early")
        await rooms.keep("r", told, 0.1)
        await rooms.keep("r", early, 60)
        await rooms.keep("r", Visitor("c"), 0.1)
        assert (await rooms.enter("r", Visitor("d"), RoomLoad(9, 10, SECOND_US))).admitted
        await asyncio.sleep(0.1)

        load = RoomLoad(10, 10, SECOND_US)
        entries = [await rooms.enter("r", who, load) for who in (early, Visitor("c"), Visitor("c", "new"), told, told)]

        assert [entry.admitted for entry in entries] == [False, False, False, True, False]

    async def test_who_was_told_by_another_room_and_comes_early_is_told_the_same_time_again(
        self, rooms: WaitingRooms
    ) -> None:
        await rooms.keep("r", Visitor("c", "told"), 20)

        entries = [await rooms.enter("r", Visitor("c", "told"), _FULL) for _ in range(2)]

        assert not any(entry.admitted for entry in entries)
        assert [entry.wait_s for entry in entries] == pytest.approx([20, 20], abs=_SLACK_S)

    async def test_who_was_told_by_another_room_waits_again_when_this_one_is_far_too_full(
        self, rooms: WaitingRooms
    ) -> None:
        await rooms.keep("r", Visitor("c", "told"), 0)

        assert not (await rooms.enter("r", Visitor("c", "told"), RoomLoad(12, 10, 20 * SECOND_US))).admitted
        assert not (await rooms.enter("r", Visitor("c", "told"), RoomLoad(10, 10, 20 * SECOND_US))).admitted

    async def test_who_holds_all_it_may_is_passed_no_more(self, rooms: WaitingRooms) -> None:
        for n in range(PLACES_EACH + 1):
            await rooms.keep("r", Visitor("c", str(n)), 0)

        load = RoomLoad(10, 10, 20 * SECOND_US)
        assert not (await rooms.enter("r", Visitor("c", str(PLACES_EACH)), load)).admitted
        assert (await rooms.enter("r", Visitor("c", "0"), load)).admitted


class SharedRoomsContract:
    """Required of WaitingRooms that processes share."""

    async def test_processes_that_counted_at_the_same_time_fill_a_room_once(
        self, rooms: WaitingRooms, twin: WaitingRooms
    ) -> None:
        async def fill(process: WaitingRooms, name: str) -> int:
            own = 0
            for n in range(8):
                load = RoomLoad(4 + own, 10, SECOND_US, age_us=4 * SECOND_US)
                own += (await process.enter("r", Visitor(f"{name}{n}"), load)).admitted
            return own

        let_in = await asyncio.gather(fill(rooms, "a"), fill(twin, "b"))

        assert sum(let_in) == 6

    async def test_what_others_let_in_before_a_count_is_in_it_when_there_was_time_to_store_it(
        self, rooms: WaitingRooms, twin: WaitingRooms
    ) -> None:
        for n in range(6):
            assert (await twin.enter("r", Visitor(f"b{n}"), RoomLoad(4 + n, 10, SECOND_US, age_us=0))).admitted
        at_once = await rooms.enter("r", Visitor("a"), RoomLoad(9, 10, SECOND_US // 100, age_us=0))
        await asyncio.sleep((STORING_US + MAX_AGE_US // 20) / SECOND_US)

        later = await rooms.enter("r", Visitor("a"), RoomLoad(9, 10, SECOND_US // 100, age_us=0))

        assert (at_once.admitted, later.admitted) == (False, True)
