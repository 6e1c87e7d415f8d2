"""The reports of the workers sum up to how fast the queue drains."""

import asyncio

import pytest

from everturn.core.errors import Unavailable
from everturn.queue.model import WorkerPresence
from everturn_testing.core import FixedClock
from everturn_testing.queue.presences import MemoryPresences
from ingress.admission.queue_gate import (
    GUESSED_TURN_S,
    PAUSE_S,
    STALE_S,
    WorkerPool,
    WorkerPoolWatch,
    build_worker_pool,
)


def worker(name: str, slots: int, turn_s: float | None = None) -> WorkerPresence:
    return WorkerPresence(name, "", None, slots, turn_s)


def test_each_worker_counts_by_its_slots() -> None:
    pool = build_worker_pool((worker("a", 3, 10.0), worker("b", 1, 2.0), worker("c", 4)))

    assert pool == WorkerPool(8, 8.0)


def test_no_workers_are_an_empty_pool_with_a_guessed_time() -> None:
    assert build_worker_pool(()) == WorkerPool(0, GUESSED_TURN_S)


async def test_workers_are_loaded_again_after_a_second() -> None:
    clock = FixedClock()
    presences = MemoryPresences(monotonic=clock.monotonic)
    watch = WorkerPoolWatch(presences, monotonic=clock.monotonic)
    assert (await watch.load()).slots == 0

    await presences.save(worker("a", 2), ttl_s=60)

    assert (await watch.load()).slots == 0
    clock.advance(2)
    assert (await watch.load()).slots == 2


class SlowPresences(MemoryPresences):
    """Counts its calls, and answers when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.answers = asyncio.Event()

    async def load_all(self) -> tuple[WorkerPresence, ...]:
        self.calls += 1
        await self.answers.wait()
        return await super().load_all()


async def test_concurrent_callers_share_one_load() -> None:
    presences = SlowPresences()
    watch = WorkerPoolWatch(presences, monotonic=FixedClock().monotonic)
    asking = [asyncio.create_task(watch.load()) for _ in range(100)]
    await asyncio.sleep(0)

    presences.answers.set()

    assert {pool.slots for pool in await asyncio.gather(*asking)} == {0}
    assert presences.calls == 1


async def test_a_redis_that_did_not_answer_is_left_alone_for_a_moment() -> None:
    clock, presences = FixedClock(), SlowPresences()
    presences.answers.set()
    presences.down = True
    watch = WorkerPoolWatch(presences, monotonic=clock.monotonic)

    failed = await asyncio.gather(*(watch.load() for _ in range(100)), return_exceptions=True)

    assert {type(each) for each in failed} == {Unavailable}
    assert presences.calls == 1
    presences.down = False
    clock.advance(PAUSE_S)
    assert (await watch.load()).slots == 0
    assert presences.calls == 2


async def test_a_redis_that_is_slow_for_a_moment_leaves_what_was_known() -> None:
    clock, presences = FixedClock(), SlowPresences()
    presences.answers.set()
    await presences.save(worker("a", 3), ttl_s=60)
    watch = WorkerPoolWatch(presences, monotonic=clock.monotonic)
    await watch.load()
    presences.down = True

    clock.advance(STALE_S)

    assert (await watch.load()).slots == 3
    clock.advance(1)
    with pytest.raises(Unavailable):
        await watch.load()
