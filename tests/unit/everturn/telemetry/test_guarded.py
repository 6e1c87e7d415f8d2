"""A guarded loop survives every error, and still ends when it is cancelled."""

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from everturn.errors import NotFound
from everturn.telemetry.guarded import guarded, run_guarded


def count(loop: str) -> float:
    return REGISTRY.get_sample_value("everturn_loop_errors_total", {"loop": loop}) or 0.0


def test_an_error_is_counted_and_kept_and_goes_no_further() -> None:
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
