"""A few at once, a few waiting, the rest refused."""

import asyncio

import pytest

from everturn.errors import Unavailable
from ingress.attachments.slots import WorkSlots


async def test_beyond_those_who_work_and_wait_everybody_is_refused_until_one_is_done() -> None:
    slots, order = WorkSlots(1, 1, "Busy."), list[str]()
    began, may_end = asyncio.Event(), asyncio.Event()

    async def work(name: str) -> None:
        async with slots.take():
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
    async with slots.take():
        assert order == ["first", "second"]


async def test_one_who_stops_waiting_leaves_its_place() -> None:
    slots = WorkSlots(1, 1, "Busy.")

    async with slots.take():
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), slots.take():
                    pytest.fail("there was no slot")
