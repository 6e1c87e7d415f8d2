import asyncio

import pytest
from prometheus_client import REGISTRY

from chat_proc.worker.sweeper import Sweeper
from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.turns.ports import Ring
from everturn_testing.core import FixedClock
from everturn_testing.queue.doorbells import MemoryDoorbells

RING = Ring(ConversationId("conv_1"), Lane.PAID)


class Sweeps:
    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.away = False

    async def claim_due_doorbells(self, *, takeovers: bool) -> tuple[Ring, ...]:
        if self.away:
            raise Unavailable()
        self.asked.append(takeovers)
        return (RING,)

    async def claim_next_doorbells(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        return ()


@pytest.fixture
def sweeps() -> Sweeps:
    return Sweeps()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def doorbells() -> MemoryDoorbells:
    return MemoryDoorbells()


@pytest.fixture
def sweeper(sweeps: Sweeps, doorbells: MemoryDoorbells, clock: FixedClock) -> Sweeper:
    return Sweeper(sweeps, doorbells, clock, lease_s=15.0)


async def test_what_is_due_is_rung_on_its_lane(sweeper: Sweeper, doorbells: MemoryDoorbells) -> None:
    await sweeper.sweep()

    assert await doorbells.next_ring([Lane.PAID], timeout_s=0.01) == RING.conversation_id


async def test_nothing_is_taken_over_before_the_link_has_held_for_a_lease(
    sweeper: Sweeper, sweeps: Sweeps, clock: FixedClock
) -> None:
    await sweeper.sweep()
    clock.advance(14.9)
    await sweeper.sweep()
    clock.advance(0.1)
    await sweeper.sweep()

    assert sweeps.asked == [False, False, True]


async def test_a_broken_connection_restarts_the_wait(sweeper: Sweeper, sweeps: Sweeps, clock: FixedClock) -> None:
    await sweeper.sweep()
    clock.advance(20)
    sweeps.away = True
    await sweeper.sweep()
    sweeps.away = False

    await sweeper.sweep()
    clock.advance(10)
    await sweeper.sweep()
    clock.advance(5)
    await sweeper.sweep()

    assert sweeps.asked == [False, False, False, True]


async def test_a_redis_that_is_down_does_not_end_the_sweeping(sweeper: Sweeper, doorbells: MemoryDoorbells) -> None:
    doorbells.down = True
    await sweeper.sweep()
    doorbells.down = False

    await sweeper.sweep()

    assert await doorbells.next_ring([Lane.PAID], timeout_s=0.01) == RING.conversation_id
    assert await doorbells.next_ring([Lane.PAID], timeout_s=0.01) is None


async def test_nothing_is_marked_as_rung_while_redis_is_down(
    sweeper: Sweeper, sweeps: Sweeps, doorbells: MemoryDoorbells
) -> None:
    doorbells.down = True

    await sweeper.sweep()

    assert sweeps.asked == []


async def test_it_sweeps_at_once_and_until_it_is_cancelled(sweeper: Sweeper, sweeps: Sweeps) -> None:
    task = asyncio.create_task(sweeper.run())
    for _ in range(5):
        await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert sweeps.asked == [False]


async def test_sweeps_are_counted_by_how_they_went(sweeps: Sweeps, clock: FixedClock) -> None:
    sweeper = Sweeper(sweeps, MemoryDoorbells(), clock, lease_s=15)
    before = [REGISTRY.get_sample_value("everturn_sweeps_total", {"outcome": each}) or 0 for each in ("ok", "failed")]

    await sweeper.sweep()
    sweeps.away = True
    await sweeper.sweep()

    after = [REGISTRY.get_sample_value("everturn_sweeps_total", {"outcome": each}) or 0 for each in ("ok", "failed")]
    assert after == [before[0] + 1, before[1] + 1]
