"""A guarded loop survives every error, and still ends when it is cancelled."""

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from everturn.core.errors import NotFound, Unavailable
from everturn.core.loops import FAILING_S, QUIET_S, LoopHealth, guarded, run_guarded
from everturn_testing.core import FixedClock


def count(loop: str) -> float:
    return REGISTRY.get_sample_value("everturn_loop_errors_total", {"loop": loop}) or 0.0


def test_an_error_is_counted_and_not_raised() -> None:
    before = count("test_block")

    with guarded("test_block") as guard:
        raise ValueError("unreadable")

    assert isinstance(guard.error, ValueError)
    assert count("test_block") == before + 1


def test_errors_that_the_caller_handles_pass() -> None:
    with pytest.raises(NotFound), guarded("test_passing", passing=(NotFound,)):
        raise NotFound


async def test_a_loop_runs_again_after_an_error_until_it_returns() -> None:
    runs: list[int] = []

    async def run() -> None:
        runs.append(len(runs))
        if len(runs) < 4:
            raise ValueError(runs[-1])

    await run_guarded("test_runs", run, first_pause_s=0.001, max_pause_s=0.002)

    assert runs == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [lambda: RuntimeError("clean-up"), lambda: ExceptionGroup("g", [OSError()])])
async def test_a_cancelled_loop_ends_even_if_an_error_replaces_the_cancellation(
    error: Callable[[], Exception],
) -> None:
    started = asyncio.Event()

    async def run() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise error()

    task = asyncio.create_task(run_guarded("test_cancel", run))
    await started.wait()

    task.cancel()
    await asyncio.wait({task}, timeout=30)

    assert task.cancelled()


def fail(health: LoopHealth, loop: str = "sweep") -> None:
    with guarded(loop, health=health):
        raise ValueError("unreadable")


async def test_a_loop_that_only_fails_is_reported_until_it_succeeds() -> None:
    clock = FixedClock()
    health = LoopHealth(clock.monotonic)
    fail(health)
    clock.advance(FAILING_S - 1)
    fail(health)
    await health.check()

    clock.advance(1)
    fail(health)
    with pytest.raises(Unavailable, match=r"sweep for 60 s \(ValueError\)"):
        await health.check()
    with guarded("sweep", health=health):
        """This round goes well."""

    await health.check()


async def test_one_failure_or_failures_far_apart_name_no_loop() -> None:
    clock = FixedClock()
    health = LoopHealth(clock.monotonic)
    fail(health, "once")
    assert list(health.failing) == ["once"]
    fail(health, "apart")
    clock.advance(QUIET_S + 1)
    fail(health, "apart")

    await health.check()


async def test_a_recovered_loop_is_no_longer_reported() -> None:
    clock = FixedClock()
    health = LoopHealth(clock.monotonic)
    fail(health)
    clock.advance(FAILING_S)
    fail(health)

    clock.advance(QUIET_S + 1)

    await health.check()


async def test_a_loop_that_ran_long_before_failing_is_healthy() -> None:
    clock = FixedClock()
    health = LoopHealth(clock.monotonic)
    runs: list[int] = []

    async def run() -> None:
        runs.append(1)
        clock.advance(FAILING_S)
        await asyncio.sleep(0.002)
        if len(runs) < 4:
            raise ValueError
        await health.check()

    await run_guarded("long", run, first_pause_s=0.001, max_pause_s=0.001, health=health)

    assert len(runs) == 4
