"""The contract of Doorbells as tests; a subclass or its module defines the fixture `doorbells`."""

import asyncio

from everturn.core.identity import Lane
from everturn.queue.model import Doorbells
from everturn_testing.core import SequentialIds

_LIMIT_S = 10.0


class DoorbellsContract:
    """Required of every Doorbells."""

    async def test_the_oldest_ring_of_the_first_lane_comes_first(self, doorbells: Doorbells) -> None:
        ids = SequentialIds()
        one, two, three = (ids.conversation() for _ in range(3))
        await doorbells.ring(Lane.REGISTERED, one)
        await doorbells.ring(Lane.PAID, two)
        await doorbells.ring(Lane.PAID, three)

        lanes = (Lane.PAID, Lane.REGISTERED)
        rings = [await doorbells.next_ring(lanes, timeout_s=_LIMIT_S) for _ in range(3)]

        assert rings == [two, three, one]
        assert await doorbells.next_ring(lanes, timeout_s=0.01) is None

    async def test_other_lanes_keep_their_rings(self, doorbells: Doorbells) -> None:
        conversation_id = SequentialIds().conversation()
        await doorbells.ring(Lane.CONTROL, conversation_id)

        assert await doorbells.next_ring((Lane.PAID,), timeout_s=0.01) is None
        assert await doorbells.next_ring((Lane.CONTROL,), timeout_s=_LIMIT_S) == conversation_id

    async def test_a_wait_ends_when_somebody_rings(self, doorbells: Doorbells) -> None:
        conversation_id = SequentialIds().conversation()

        async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(doorbells.next_ring((Lane.PAID,), timeout_s=_LIMIT_S))
            await asyncio.sleep(0)
            await doorbells.ring(Lane.PAID, conversation_id)

        assert waiting.result() == conversation_id

    async def test_one_ring_reaches_one_waiter(self, doorbells: Doorbells) -> None:
        conversation_id = SequentialIds().conversation()

        async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as tasks:
            waiters = [tasks.create_task(doorbells.next_ring((Lane.PAID,), timeout_s=0.5)) for _ in range(3)]
            await asyncio.sleep(0)
            await doorbells.ring(Lane.PAID, conversation_id)

        assert sorted(str(waiter.result()) for waiter in waiters) == sorted(["None", "None", conversation_id])

    async def test_a_wait_for_nothing_ends_in_time(self, doorbells: Doorbells) -> None:
        async with asyncio.timeout(_LIMIT_S):
            assert await doorbells.next_ring(tuple(Lane), timeout_s=0.05) is None

    async def test_a_redis_that_answers_passes_the_check(self, doorbells: Doorbells) -> None:
        await doorbells.check(limit_s=_LIMIT_S)
        await doorbells.check(limit_s=_LIMIT_S, writing=True)
