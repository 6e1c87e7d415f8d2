import asyncio

from chat_proc.worker.slots import Slots


async def settles(waiting: "asyncio.Task[None]") -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return waiting.done()


async def test_a_full_worker_waits_for_a_slot() -> None:
    slots = Slots(1)
    slots.take()
    waiting = asyncio.create_task(slots.wait_free())

    assert not await settles(waiting)
    slots.give_back()

    assert await settles(waiting)


async def test_a_suspect_turn_waits_for_the_others_and_keeps_new_ones_out() -> None:
    slots = Slots(3)
    slots.take()
    slots.take()
    alone = asyncio.create_task(slots.wait_alone())
    await asyncio.sleep(0)
    newcomer = asyncio.create_task(slots.wait_free())

    assert not await settles(alone)
    slots.give_back()
    assert await settles(alone)
    assert not await settles(newcomer)
    slots.end_alone()

    assert await settles(newcomer)


async def test_a_control_claim_may_go_over_the_count() -> None:
    slots = Slots(1)

    slots.take()
    slots.take()

    assert slots.running == 2
