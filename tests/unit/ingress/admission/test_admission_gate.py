"""Backpressure from the queue's depth and the memory of Redis; every refusal says when to come back."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane, Principal
from everturn.events.stream import RedisUse
from everturn.queue.model import QueueCaps, QueueDepth, QueueFull, WorkerPresence
from everturn_testing.core import FixedClock
from everturn_testing.queue.doorbells import MemoryDoorbells
from everturn_testing.queue.presences import MemoryPresences
from ingress.admission.queue_gate import WorkerPoolWatch, WorkGate
from ingress.errors import ProblemError
from ingress.metrics import IngressMetrics

ME = Principal("t", "p", "me")
CAPS = QueueCaps(100)


class World:
    """A gate before a queue of a given depth, of which 100 turns can wait, and 50 of a tenant on a lane."""

    def __init__(self, waiting: int = 0, of_tenant: int = 0) -> None:
        self.depth: QueueDepth | None = QueueDepth(waiting, of_tenant)
        self.counted = 0
        self.silent = False
        self.luck = 0.0
        self.clock = FixedClock()
        self.metrics = IngressMetrics()
        self.use = RedisUse(0, 100)
        self.memory_reads = 0
        self.doorbells = MemoryDoorbells()
        self.presences = MemoryPresences(monotonic=self.clock.monotonic)
        world: Any = self
        self.gate = WorkGate(
            doorbells=self.doorbells,
            queue=world,
            memory=world,
            workers=WorkerPoolWatch(self.presences, monotonic=self.clock.monotonic),
            caps=CAPS,
            metrics=self.metrics,
            monotonic=self.clock.monotonic,
            random=lambda: self.luck,
        )

    async def probe(self, owner: Principal) -> RedisUse:
        if self.silent:
            await asyncio.Event().wait()
        self.memory_reads += 1
        await self.doorbells.check(limit_s=1)
        return replace(self.use, refusal="OOM" if self.doorbells.out_of_memory else "")

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        self.counted += 1
        if self.depth is None:
            raise Unavailable("Postgres")
        return self.depth

    async def attend(self, turn_s: float = 10.0) -> "World":
        """Ten slots whose turns take this many seconds."""
        await self.presences.save(WorkerPresence("w", "", None, 10, turn_s), ttl_s=600)
        return self

    async def refuse(self, principal: Principal = ME) -> tuple[int, int]:
        """The status and the wait of a refusal."""
        with pytest.raises(ProblemError) as refused:
            await self.gate.admit(principal, new_work=True)
        return refused.value.status_code, int((refused.value.headers or {})["Retry-After"])

    def refusals(self, reason: str) -> float:
        labels = {"reason": reason, "role": "registered"}
        return self.metrics.registry.get_sample_value("ingress_refusals_total", labels) or 0


async def test_below_its_maximum_work_is_admitted() -> None:
    world = await World(waiting=99, of_tenant=49).attend()

    await world.gate.admit(ME, new_work=True)


@pytest.mark.parametrize(
    ("turn_s", "luck", "retry_after_s"),
    [(1.0, 0.0, 5), (1.0, 0.99, 10), (10.0, 0.0, 10), (10.0, 0.5, 15), (10.0, 0.99, 20), (900.0, 0.99, 30)],
)
async def test_a_full_queue_is_a_503_for_one_to_two_turns(turn_s: float, luck: float, retry_after_s: int) -> None:
    world = await World(waiting=100).attend(turn_s)
    world.luck = luck

    assert await world.refuse() == (503, retry_after_s)
    assert world.refusals("queue") == 1


async def test_a_full_share_of_a_tenant_is_a_429_while_others_are_admitted() -> None:
    world = await World(waiting=60, of_tenant=50).attend()

    assert await world.refuse() == (429, 10)
    assert world.refusals("tenant") == 1
    world.depth = QueueDepth(60, 10)
    await world.gate.admit(Principal("light", "p", "u"), new_work=True)


async def test_concurrent_requests_are_not_all_admitted_by_one_count() -> None:
    world = await World(waiting=98).attend()

    for n in range(2):
        await world.gate.admit(Principal("t", "p", str(n)), new_work=True)

    assert (await world.refuse())[0] == 503
    assert world.counted == 1


async def test_without_workers_the_problem_says_so_and_callers_wait_longer() -> None:
    world = World(waiting=100)

    with pytest.raises(ProblemError) as refused:
        await world.gate.admit(ME, new_work=True)

    assert refused.value.headers == {"Retry-After": "15"}
    assert refused.value.detail == "100 turns are already waiting, and no worker is running."
    await World(waiting=99).gate.admit(ME, new_work=True)


async def test_signals_into_running_turns_pass_a_full_queue() -> None:
    await World(waiting=10_000).gate.admit(ME, new_work=False)


@pytest.mark.parametrize("new_work", [True, False])
async def test_a_redis_that_does_not_answer_is_a_503(new_work: bool) -> None:
    world = World()
    world.doorbells.down = True

    with pytest.raises(ProblemError) as refused:
        await world.gate.admit(ME, new_work=new_work)

    assert refused.value.status_code == 503
    assert "Retry-After" in (refused.value.headers or {})
    assert world.refusals("redis") == 1


async def test_a_redis_that_stores_nothing_is_a_503_for_new_work_only() -> None:
    world = World()
    world.doorbells.out_of_memory = True

    await world.gate.admit(ME, new_work=False)
    assert (await world.refuse())[0] == 503
    assert world.refusals("redis") == 1


async def test_new_work_gets_503_once_redis_refuses_writes() -> None:
    world = World()
    await world.gate.admit(ME, new_work=True)
    world.doorbells.out_of_memory = True

    assert (await world.refuse())[0] == 503
    assert world.memory_reads == 1


async def test_a_redis_whose_memory_is_used_up_is_refused_for_its_memory() -> None:
    world = World()
    world.use, world.doorbells.out_of_memory = RedisUse(95, 100), True

    assert await world.refuse() == (503, 60)
    assert world.refusals("memory") == 1


async def test_a_queue_that_is_not_counted_is_a_503() -> None:
    world = World()
    world.depth = None

    assert (await world.refuse())[0] == 503


async def test_a_redis_that_never_answers_is_a_503_in_time() -> None:
    world = await World(waiting=99).attend()
    world.silent = True

    async with asyncio.timeout(30):
        refused = await world.refuse()
    world.silent = False

    assert refused[0] == 503
    await world.gate.admit(ME, new_work=True)


@pytest.mark.parametrize(("full", "status"), [("queue", 503), ("tenant", 429), ("user", 429)])
async def test_a_refusal_of_the_transaction_is_counted_and_has_retry_after(full: Any, status: int) -> None:
    world = await World().attend()

    refused = await world.gate.refuse(ME, QueueFull(full, "13 turns are already waiting."))

    assert (refused.status_code, refused.headers) == (status, {"Retry-After": "10"})
    assert refused.detail == "13 turns are already waiting."
    assert world.refusals(full) == 1


async def test_a_refusal_does_not_need_redis() -> None:
    world = World()
    world.presences.down = True

    refused = await world.gate.refuse(ME, QueueFull("queue", "13 turns are already waiting."))

    assert (refused.headers, refused.detail) == ({"Retry-After": "15"}, "13 turns are already waiting.")


async def test_what_is_being_stored_counts_until_it_is() -> None:
    world = await World(waiting=99).attend()

    admission = await world.gate.admit(ME, new_work=True)
    world.clock.advance(1)
    assert (await world.refuse(Principal("t", "p", "other")))[0] == 503
    admission.leave()
    world.clock.advance(20)

    await world.gate.admit(Principal("t", "p", "another"), new_work=True)


@pytest.mark.parametrize(("used", "reads"), [(10, 3), (75, 11)])
async def test_memory_is_read_four_times_a_second_unless_it_is_scarce(used: int, reads: int) -> None:
    world = await World().attend()
    world.use = RedisUse(used=used, limit=100, of_user=0)

    for _ in range(11):
        await world.gate.admit(ME, new_work=True)
        world.clock.advance(0.06)

    assert world.memory_reads == reads


@pytest.mark.parametrize(
    ("use", "refusal"),
    [
        (RedisUse(used=60, limit=100, of_user=50 << 20), None),
        (RedisUse(used=70, limit=100, of_user=1 << 20), (429, 60)),
        (RedisUse(used=89, limit=100, of_user=0), None),
        (RedisUse(used=90, limit=100, of_user=0), (503, 60)),
        (RedisUse(used=90, limit=0, of_user=50 << 20), None),
    ],
)
async def test_a_user_that_fills_redis_is_refused_early(use: RedisUse, refusal: tuple[int, int] | None) -> None:
    world = await World().attend()
    world.use = use

    if refusal is None:
        (await world.gate.admit(ME, new_work=True)).settle()
    else:
        assert await world.refuse() == refusal
