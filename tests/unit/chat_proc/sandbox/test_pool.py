"""The warm pool over a launcher in memory: what waits, who gets it, what is replaced, and that nothing stays."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import pytest

from chat_proc.sandbox.pool import WarmPool
from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.messages import Finished, Posture, RunLimits

POSTURE = Posture("l", "r", 1, "u", "n", "m", "p", "d", "s")


class CountingLauncher:
    """Boots numbered supervisors that do nothing; `alive` are those that have not been ended."""

    def __init__(self) -> None:
        self.booted = 0
        self.alive: set[int] = set()
        self.dead: set[int] = set()
        self.failures_left = 0

    @contextlib.asynccontextmanager
    async def take(self, profile: str, run_name: str) -> AsyncGenerator[BootedSupervisor]:
        await asyncio.sleep(0)
        if self.failures_left:
            self.failures_left -= 1
            raise SupervisorFailed("no room")
        self.booted += 1
        number = self.booted
        self.alive.add(number)
        try:
            yield build_supervisor(profile, number, lambda: number not in self.dead)
        finally:
            self.alive.remove(number)


def build_supervisor(profile: str, number: int, is_waiting: Callable[[], bool]) -> BootedSupervisor:
    async def say_nothing() -> str:
        return f"{profile} {number}"

    async def see_nothing(finished: Finished) -> tuple[()]:
        return ()

    stream = FrameStream(asyncio.StreamReader(), None, FrameDecoder())
    return BootedSupervisor(stream, POSTURE, RunLimits(), say_nothing, see_nothing, is_waiting)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def launcher() -> CountingLauncher:
    return CountingLauncher()


@pytest.fixture
def full() -> asyncio.Event:
    """Set when the pool is full."""
    return asyncio.Event()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextlib.asynccontextmanager
async def running(pool: WarmPool) -> AsyncIterator[None]:
    task = asyncio.create_task(pool.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until_full(full: asyncio.Event) -> None:
    """Wait until the pool is full again, after what a test took since the last time."""
    await asyncio.wait_for(full.wait(), 10)
    full.clear()


async def test_a_run_gets_one_that_waits_and_another_is_booted_in_its_place(launcher, full):
    pool = WarmPool(launcher, {"default": 2}, on_full=full.set)

    async with running(pool):
        await until_full(full)
        assert launcher.booted == 2
        async with pool.take("default", "run") as supervisor:
            assert await supervisor.read_errors() == "default 1"
            await until_full(full)
            assert launcher.alive == {1, 2, 3}
        assert launcher.alive == {2, 3}


async def test_none_is_given_twice(launcher, full):
    pool = WarmPool(launcher, {"default": 3}, on_full=full.set)

    async def use() -> str:
        async with pool.take("default", "run") as supervisor:
            await asyncio.sleep(0)
            return await supervisor.read_errors()

    async with running(pool):
        await until_full(full)
        used = await asyncio.gather(*(use() for _ in range(20)))

    assert len(set(used)) == 20
    assert launcher.alive == set()


async def test_an_empty_pool_and_a_profile_without_one_start_cold(launcher):
    pool = WarmPool(launcher, {"default": 1, "rare": 0})

    async with pool.take("default", "run") as first, pool.take("rare", "run") as second:
        assert [await first.read_errors(), await second.read_errors()] == ["default 1", "rare 2"]

    assert launcher.alive == set()


async def test_what_still_waits_at_the_end_is_ended(launcher, full):
    pool = WarmPool(launcher, {"default": 2, "small": 1}, on_full=full.set)

    async with running(pool):
        await until_full(full)
        assert len(launcher.alive) == 3

    assert launcher.alive == set()


async def test_one_that_died_while_it_waited_is_not_given_to_a_run(launcher, full):
    pool = WarmPool(launcher, {"default": 2}, on_full=full.set)

    async with running(pool):
        await until_full(full)
        launcher.dead.add(1)
        async with pool.take("default", "run") as supervisor:
            assert await supervisor.read_errors() == "default 2"
            assert 1 not in launcher.alive


async def test_one_that_waited_too_long_is_replaced(launcher, full, clock):
    pool = WarmPool(launcher, {"default": 2}, max_age_s=60, now_s=clock, on_full=full.set)

    async with running(pool):
        await until_full(full)
        clock.now_s = 61
        async with pool.take("default", "run"):
            await until_full(full)
            assert launcher.alive == {1, 3, 4}


async def test_a_boot_that_fails_is_tried_again_and_a_run_starts_cold_meanwhile(launcher, full):
    launcher.failures_left = 1
    pool = WarmPool(launcher, {"default": 1}, on_full=full.set)

    async with running(pool):
        await asyncio.sleep(0.01)
        async with pool.take("default", "run") as cold:
            assert await cold.read_errors() == "default 1"
        await until_full(full)
        assert launcher.alive == {2}


async def test_a_failing_launcher_fails_the_run(launcher):
    launcher.failures_left = 1

    with pytest.raises(SupervisorFailed, match="no room"):
        async with WarmPool(launcher, {"default": 1}).take("default", "run"):
            pass
