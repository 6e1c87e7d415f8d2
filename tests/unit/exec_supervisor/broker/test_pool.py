"""Warm pairs: when they are created, handed out and replaced, and how fast failed boots are retried."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from everturn.core.errors import Invalid
from everturn.execution.profiles import ExecutionProfile
from exec_supervisor.broker.engine import StartFailed, StartTimedOut
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.pairs import UnknownProfile
from exec_supervisor.broker.pool import Pool, check_warm_fits

PROFILES = {"cold": ExecutionProfile(), "warm": ExecutionProfile(warm=2)}


@dataclass(slots=True)
class PlainPair:
    number: int
    run_id: str
    is_unusable: bool = False
    callbacks: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    @property
    def pair(self) -> "PlainPair":
        return self

    def assign(self, run_id: str) -> None:
        assert not self.run_id
        self.run_id = run_id

    def call_when_unusable(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def speak(self) -> None:
        self.is_unusable = True
        for callback in self.callbacks:
            callback()


@dataclass(slots=True)
class Maker:
    """Makes plain pairs at once; `fails` is how many of the next boots don't come about."""

    fails: int = 0
    has_room: bool = True
    made: list[PlainPair] = field(default_factory=list[PlainPair])
    discarded: list[PlainPair] = field(default_factory=list[PlainPair])
    tries: int = 0
    at_once: int = 0
    most_at_once: int = 0

    def get_profile(self, name: str) -> ExecutionProfile:
        if name not in PROFILES:
            raise UnknownProfile(name)
        return PROFILES[name]

    async def boot(self, profile_name: str, run_id: str = "") -> PlainPair:
        self.tries += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.fails:
            self.fails -= 1
            raise StartFailed("no such image")
        pair = PlainPair(len(self.made), run_id)
        self.made.append(pair)
        return pair

    def discard(self, warm: PlainPair) -> None:
        self.discarded.append(warm)


@dataclass(slots=True)
class Bench:
    maker: Maker
    pool: Pool
    now: list[float]
    registry: CollectorRegistry


@asynccontextmanager
async def running_pool(maker: Maker) -> AsyncGenerator[Bench]:
    registry, now = CollectorRegistry(), [0.0]
    typed: Any = maker
    pool = Pool(typed, PROFILES, BrokerMetrics(registry), max_age_s=100.0, head_start_s=0.0, clock=lambda: now[0])
    running = asyncio.create_task(pool.run())
    yield Bench(maker, pool, now, registry)
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()


async def settle(until: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not until():  # noqa: ASYNC110 - the pool does not signal its own actions
            await asyncio.sleep(0.001)


async def test_the_pool_fills_itself_one_pair_at_a_time():
    async with running_pool(Maker()) as bench:
        await settle(lambda: len(bench.maker.made) == 2)
        for _ in range(20):
            await asyncio.sleep(0)

    assert len(bench.maker.made) == 2
    assert bench.maker.most_at_once == 1


async def test_a_warm_pair_goes_to_one_run_and_another_takes_its_place():
    async with running_pool(Maker()) as bench:
        await settle(lambda: len(bench.maker.made) == 2)
        tries = bench.maker.tries
        first, warm = await bench.pool.acquire("warm", "run_1")
        asked_the_engine = bench.maker.tries - tries
        await settle(lambda: len(bench.maker.made) == 3)
        second, _ = await bench.pool.acquire("warm", "run_2")

    assert warm
    assert asked_the_engine == 0
    assert (first.pair.run_id, second.pair.run_id) == ("run_1", "run_2")
    assert first is not second


async def test_an_empty_pool_and_a_profile_without_one_start_cold():
    async with running_pool(Maker(has_room=False)) as bench:
        booted, warm = await bench.pool.acquire("warm", "run_1")
        cold, _ = await bench.pool.acquire("cold", "run_2")

    assert not warm
    assert (booted.pair.run_id, cold.pair.run_id) == ("run_1", "run_2")
    assert 'starts_total{kind="cold"} 2.0' in generate_latest(bench.registry).decode()


async def test_an_unknown_profile_is_refused():
    async with running_pool(Maker()) as bench:
        with pytest.raises(UnknownProfile):
            await bench.pool.acquire("wider", "run_1")


async def test_a_pair_that_dies_warm_is_replaced_and_never_given_out():
    async with running_pool(Maker()) as bench:
        await settle(lambda: len(bench.maker.made) == 2)
        bench.maker.made[0].speak()
        await settle(lambda: bool(bench.maker.discarded))
        bench.now[0] += 1
        booted, _ = await bench.pool.acquire("warm", "run_1")

    assert bench.maker.discarded == [bench.maker.made[0]]
    assert booted is bench.maker.made[1]


async def test_a_dead_warm_pair_is_skipped():
    async with running_pool(Maker()) as bench:
        await settle(lambda: len(bench.maker.made) == 2)
        bench.maker.made[0].is_unusable = True
        booted, warm = await bench.pool.acquire("warm", "run_1")

    assert warm
    assert booted is bench.maker.made[1]
    assert bench.maker.made[0] in bench.maker.discarded


async def test_a_pair_that_has_grown_old_is_replaced():
    async with running_pool(Maker()) as bench:
        await settle(lambda: len(bench.maker.made) == 2)
        bench.now[0] += 100
        await bench.pool.acquire("warm", "run_1")
        await settle(lambda: len(bench.maker.made) == 4)

    assert bench.maker.discarded == [bench.maker.made[1]]


async def test_profiles_that_wait_are_tried_one_at_a_time(monkeypatch: pytest.MonkeyPatch):
    for name in ("late1", "late2"):
        monkeypatch.setitem(PROFILES, name, ExecutionProfile(warm=1))
    maker, waiting = Maker(), asyncio.Event()
    boot, tries = maker.boot, Counter[str]()

    async def boot_late(name: str, run_id: str = "") -> PlainPair:
        if name.startswith("late"):
            tries[name] += 1
            if tries[name] == 1:
                raise StartTimedOut("the machine is busy")
            await waiting.wait()
        return await boot(name, run_id)

    typed: Any = maker
    monkeypatch.setattr(Maker, "boot", lambda _, name, run_id="": boot_late(name, run_id))
    async with running_pool(typed) as bench:
        await settle(lambda: tries.total() == 2 and len(maker.made) == 2)
        bench.now[0] += 0.5
        bench.pool._changed.set()
        await settle(lambda: tries.total() == 3)
        await bench.pool.acquire("warm", "run_1")
        await settle(lambda: len(maker.made) == 3)
        tried = tries.total()
        waiting.set()
        await settle(lambda: len(maker.made) == 5)

    assert tried == 3


async def test_a_profile_that_waits_for_its_image_holds_up_no_other_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PROFILES, "late", ExecutionProfile(warm=2))
    maker, waiting, late = Maker(), asyncio.Event(), 0
    boot = maker.boot

    async def boot_late(name: str, run_id: str = "") -> PlainPair:
        nonlocal late
        if name == "late":
            late += 1
            await (asyncio.sleep(0) if late == 1 else waiting.wait())
            if late == 1:
                raise StartTimedOut("the image can't be pulled")
        return await boot(name, run_id)

    typed: Any = maker
    monkeypatch.setattr(Maker, "boot", lambda _, name, run_id="": boot_late(name, run_id))
    async with running_pool(typed) as bench:
        await settle(lambda: late == 1 and len(maker.made) == 2)
        bench.now[0] += 0.5
        bench.pool._changed.set()
        await settle(lambda: late == 2)
        await bench.pool.acquire("warm", "run_1")
        await settle(lambda: len(maker.made) == 3)
        tries = late
        waiting.set()
        await settle(lambda: len(maker.made) == 5)

    assert tries == 2


async def test_a_failed_boot_is_retried_with_growing_pauses():
    async with running_pool(Maker(fails=2)) as bench:
        await settle(lambda: bench.maker.tries == 1)
        bench.pool._changed.set()
        for _ in range(20):
            await asyncio.sleep(0)
        at_once = bench.maker.tries
        bench.now[0] += 0.5
        bench.pool._changed.set()
        await settle(lambda: bench.maker.tries == 2)
        bench.now[0] += 0.5
        bench.pool._changed.set()
        for _ in range(20):
            await asyncio.sleep(0)
        too_early = bench.maker.tries
        bench.now[0] += 0.5
        bench.pool._changed.set()
        await settle(lambda: len(bench.maker.made) == 2)

    assert (at_once, too_early) == (1, 2)


def test_warm_pairs_have_to_leave_room_for_one_run():
    check_warm_fits(PROFILES, 3)

    with pytest.raises(Invalid, match="BROKER_MAX_PAIRS=2"):
        check_warm_fits(PROFILES, 2)
