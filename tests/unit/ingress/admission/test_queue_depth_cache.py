"""An admission counts once: in this process until it is stored, and in the queue's count afterwards."""

import asyncio
from typing import Any

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.queue.model import QueueDepth
from everturn_testing.core import FixedClock
from ingress.admission.queue_gate import KEEP_S, QueueDepthCache

KEY, OTHER = ("t", Lane.PAID), ("o", Lane.PAID)


class World:
    """QueueDepthCache before a queue whose stored turns are those of one tenant."""

    def __init__(self) -> None:
        self.stored = 0
        self.counted = 0
        self.gone = False
        self.clock = FixedClock()
        queue: Any = self
        self.places = QueueDepthCache(queue, monotonic=self.clock.monotonic)

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        self.counted += 1
        depth = QueueDepth(self.stored, self.stored if (tenant, lane) == KEY else 0)
        await asyncio.sleep(0)
        if self.gone:
            raise Unavailable("Postgres")
        return depth

    async def waiting(self, key: tuple[str, Lane] = KEY) -> tuple[int, int]:
        depth = await self.places.load(key)
        return depth.waiting, depth.of_tenant

    def store(self) -> None:
        """Store one admitted turn."""
        self.stored += 1
        self.places.settle(KEY)

    def recount(self) -> None:
        self.clock.advance(KEEP_S + 0.01)


async def test_an_admission_counts_at_once_for_its_tenant_and_for_all() -> None:
    world = World()

    world.places.enter(KEY)

    assert await world.waiting() == (1, 1)
    assert await world.waiting(OTHER) == (1, 0)


async def test_one_that_is_stored_counts_once_before_and_after_the_next_count() -> None:
    world = World()
    assert await world.waiting() == (0, 0)
    world.places.enter(KEY)

    world.store()

    assert await world.waiting() == (1, 1)
    world.recount()
    assert await world.waiting() == (1, 1)
    assert world.counted == 2


async def test_one_that_is_still_being_stored_outlives_a_new_count() -> None:
    world = World()
    world.places.enter(KEY)

    world.recount()

    assert await world.waiting() == (1, 1)


async def test_a_refusal_after_a_new_count_does_not_reduce_it() -> None:
    world = World()
    world.stored = 3
    assert await world.waiting() == (3, 3)
    world.places.enter(KEY)
    world.recount()
    assert await world.waiting() == (4, 4)

    world.places.leave(KEY)

    assert await world.waiting() == (3, 3)


async def test_one_that_is_stored_while_a_count_runs_is_not_missed() -> None:
    world = World()
    world.places.enter(KEY)
    counting = asyncio.create_task(world.waiting())
    await asyncio.sleep(0)

    world.store()

    assert await counting == (1, 1)


async def test_each_tenant_has_a_count_of_its_own_age() -> None:
    world = World()
    assert await world.waiting(OTHER) == (0, 0)
    world.clock.advance(KEEP_S - 0.05)
    world.places.enter(KEY)
    world.store()
    world.clock.advance(0.01)

    assert await world.waiting() == (1, 1)
    assert await world.waiting(OTHER) == (1, 0)


async def test_of_many_at_once_one_counts() -> None:
    world = World()

    found = await asyncio.gather(*(world.waiting() for _ in range(50)))

    assert set(found) == {(0, 0)}
    assert world.counted == 1


async def test_a_queue_that_can_not_be_counted_is_unavailable() -> None:
    world = World()
    world.gone = True

    with pytest.raises(Unavailable):
        await world.waiting()
