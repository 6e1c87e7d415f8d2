"""A few run at once, a few wait, and the rest are refused."""

import asyncio

import pytest

from everturn.core.errors import Unavailable
from everturn.core.work_slots import WorkSlots


async def test_callers_are_refused_while_slots_and_waiting_places_are_full() -> None:
    slots, order = WorkSlots(1, 1, "Busy."), list[str]()
    began, may_end = asyncio.Event(), asyncio.Event()

    async def work(name: str) -> None:
        async with slots.acquire():
            order.append(name)
            began.set()
            await may_end.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(work("first"))
        group.create_task(work("second"))
        await began.wait()
        with pytest.raises(Unavailable, match=r"Busy\."):
            await work("third")
        may_end.set()

    assert order == ["first", "second"]
    async with slots.acquire():
        assert order == ["first", "second"]


async def test_a_cancelled_waiter_gives_its_place_back() -> None:
    slots = WorkSlots(1, 1, "Busy.")

    async with slots.acquire():
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), slots.acquire():
                    pytest.fail("there was no slot")


async def test_a_user_with_many_waiters_does_not_delay_others() -> None:
    slots, order = WorkSlots(1, 4, "Busy."), list[str]()
    may_end = asyncio.Event()

    async def work(person: str) -> None:
        try:
            async with slots.acquire(person):
                order.append(person)
                await may_end.wait()
        except Unavailable:
            order.append(f"{person} refused")

    async with asyncio.TaskGroup() as group:
        for person in ("greedy", *["greedy"] * 5, "ann", "bob", "ann"):
            group.create_task(work(person))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        refused = order[1:]
        may_end.set()

    assert sorted(refused) == ["ann refused", *["greedy refused"] * 3]
    assert order[-4:] == ["greedy", "ann", "bob", "greedy"]


async def test_a_slot_that_comes_with_a_cancellation_goes_on_to_the_next() -> None:
    slots = WorkSlots(1, 2, "Busy.")

    async def work() -> None:
        async with slots.acquire("ann"):
            return

    async with slots.acquire("bob"):
        first, second = asyncio.create_task(work()), asyncio.create_task(work())
        await asyncio.sleep(0)
    first.cancel()
    await second

    async with asyncio.timeout(1), slots.acquire("ann"):
        assert first.cancelled()


async def test_one_person_never_holds_all_slots() -> None:
    slots, working = WorkSlots(3, 8, "Busy.", at_once_of_owner=2), list[str]()
    may_end = {name: asyncio.Event() for name in ("greedy", "ann", "bob")}

    async def work(person: str) -> None:
        async with slots.acquire(person):
            working.append(person)
            await may_end[person].wait()
        working.remove(person)

    async def settle() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work("greedy"))
        await settle()
        alone = sorted(working)
        for person in ("ann", "bob"):
            group.create_task(work(person))
        await settle()
        shared = sorted(working)
        may_end["ann"].set()
        await settle()
        after_ann = sorted(working)
        for event in may_end.values():
            event.set()

    assert (alone, shared) == (["greedy"] * 2, ["ann", "greedy", "greedy"])
    assert after_ann == ["bob", "greedy", "greedy"]
    assert working == []


async def test_a_waiter_that_timed_out_takes_no_slot_later() -> None:
    slots = WorkSlots(1, 8, "Busy.", longest_wait_s=0.02)

    async with slots.acquire("ann"):
        with pytest.raises(Unavailable, match="Busy"):
            async with slots.acquire("bob"):
                raise AssertionError("nobody has left")

    async with asyncio.timeout(1), slots.acquire("carl"):
        pass
