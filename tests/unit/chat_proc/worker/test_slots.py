import asyncio

from prometheus_client import REGISTRY

from chat_proc.worker.loop import Slots, build_claim_bounds
from everturn.turns.model import ClaimBounds


async def settles(waiting: "asyncio.Task[None]") -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return waiting.done()


async def test_a_full_worker_waits_for_a_slot() -> None:
    slots = Slots(1)
    slots.acquire()
    waiting = asyncio.create_task(slots.wait_free())

    assert not await settles(waiting)
    slots.release()

    assert await settles(waiting)


async def test_a_suspect_turn_waits_for_the_others_and_keeps_new_ones_out() -> None:
    slots = Slots(3)
    slots.acquire()
    slots.acquire()
    with slots.exclusive():
        alone = asyncio.create_task(slots.wait_exclusive())
        await asyncio.sleep(0)
        newcomer = asyncio.create_task(slots.wait_free())

        assert not await settles(alone)
        slots.release()
        assert await settles(alone)
        assert not await settles(newcomer)

    assert await settles(newcomer)


async def test_a_control_claim_may_go_over_the_count() -> None:
    slots = Slots(1)

    slots.acquire()
    slots.acquire()

    assert slots.running == 2


async def test_two_suspect_turns_run_one_after_the_other() -> None:
    slots = Slots(4)
    slots.acquire()
    slots.acquire()
    suspects = [asyncio.create_task(slots.wait_exclusive()) for _ in range(2)]

    assert [await settles(suspect) for suspect in suspects].count(True) == 1
    slots.release()

    assert [await settles(suspect) for suspect in suspects] == [True, True]


async def test_a_suspect_turn_does_not_wait_for_ever() -> None:
    slots = Slots(2, exclusive_wait_s=0.01)
    slots.acquire()
    slots.acquire()

    await asyncio.wait_for(slots.wait_exclusive(), 5)


async def test_a_cancelled_wait_unblocks_the_slots() -> None:
    slots = Slots(3)
    slots.acquire()
    slots.acquire()

    async def run_alone() -> None:
        with slots.exclusive():
            await slots.wait_exclusive()

    suspect = asyncio.create_task(run_alone())
    await asyncio.sleep(0)

    suspect.cancel()
    await asyncio.wait({suspect})

    await asyncio.wait_for(slots.wait_free(), 5)


async def test_the_slots_and_the_occupied_ones_are_measured() -> None:
    slots = Slots(3)
    slots.acquire()
    slots.acquire()
    slots.release()

    assert REGISTRY.get_sample_value("everturn_worker_slots") == 3
    assert REGISTRY.get_sample_value("everturn_worker_turns") == 1


def test_one_tenant_may_hold_half_of_all_slots_and_at_least_one() -> None:
    assert build_claim_bounds(3, 5, 4) == ClaimBounds(3, 3, 5, 4)
    assert build_claim_bounds(3, 1, 0) == ClaimBounds(3, 1, 1, 0)
