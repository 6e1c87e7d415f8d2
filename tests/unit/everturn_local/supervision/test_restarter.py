"""Keeping a part alive."""

import asyncio
import signal
from collections.abc import Mapping

import pytest

from everturn.core.errors import EverturnError
from everturn_local.supervision.restarter import MAX_DELAY_S, build_restart_delay_s, render_exit, run_restarter


class DyingPart:
    """Dies with each exit code in turn, then lives on. `broken_starts` of its starts fail."""

    def __init__(self, codes: list[int], broken_starts: int = 0) -> None:
        self.name = "part"
        self.pid = None
        self.starts = 0
        self._codes = codes
        self._broken_starts = broken_starts
        self.lives = asyncio.Event()
        self.error: Exception = EverturnError("it is broken")

    async def start(self, *, extra_env: Mapping[str, str] | None = None) -> None:
        self.starts += 1
        if self.starts <= self._broken_starts:
            raise self.error

    async def wait_exit(self) -> int:
        if self._codes:
            return self._codes.pop(0)
        self.lives.set()
        return await asyncio.get_running_loop().create_future()

    async def stop(self, *, limit_s: float = 0.0) -> None: ...

    def send(self, sig: signal.Signals) -> None: ...


async def test_a_part_that_dies_is_restarted_and_reported():
    part, reports = DyingPart([-9, 1]), list[str]()

    restarter = asyncio.create_task(run_restarter(part, is_on=lambda: True, report=reports.append))
    await asyncio.wait_for(part.lives.wait(), 5)
    restarter.cancel()

    assert part.starts == 2
    assert "signal SIGKILL" in reports[0]
    assert "exit code 1" in reports[2]


async def test_a_failed_start_is_reported_and_retried():
    part, reports = DyingPart([1, 0], broken_starts=1), list[str]()

    restarter = asyncio.create_task(run_restarter(part, is_on=lambda: True, report=reports.append))
    await asyncio.wait_for(part.lives.wait(), 5)
    restarter.cancel()

    assert part.starts == 2
    assert any("it is broken" in line for line in reports)


async def test_an_unexpected_error_is_reported_and_the_part_is_kept():
    part, reports = DyingPart([1, 0], broken_starts=1), list[str]()
    part.error = ValueError("no port")

    restarter = asyncio.create_task(run_restarter(part, is_on=lambda: True, report=reports.append))
    await asyncio.wait_for(part.lives.wait(), 5)
    restarter.cancel()

    assert part.starts == 2
    assert any("did not start: ValueError: no port" in line for line in reports)


async def test_a_restarter_cancelled_during_a_start_leaves_no_task():
    part, begun = DyingPart([1]), asyncio.Event()

    async def start(*, extra_env: Mapping[str, str] | None = None) -> None:
        begun.set()
        await asyncio.Event().wait()

    part.start = start
    restarter = asyncio.create_task(run_restarter(part, is_on=lambda: True, report=lambda _: None))
    await asyncio.wait_for(begun.wait(), 5)

    restarter.cancel()
    await asyncio.wait({restarter})

    assert restarter.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_part_that_dies_while_restarts_are_off_stays_dead():
    part = DyingPart([1])

    await run_restarter(part, is_on=lambda: False, report=lambda _: None)

    assert part.starts == 0


@pytest.mark.parametrize(
    ("code", "text"), [(0, "exit code 0"), (3, "exit code 3"), (-15, "signal SIGTERM"), (-200, "signal 200")]
)
def test_exit_codes_are_rendered_as_text(code: int, text: str):
    assert render_exit(code) == text


def test_the_delay_doubles_with_every_recent_death_up_to_a_limit():
    delays = [build_restart_delay_s([100.0] * count, 100.0) for count in range(1, 9)]

    assert delays[:4] == [0.2, 0.4, 0.8, 1.6]
    assert delays[-1] == MAX_DELAY_S


def test_old_deaths_are_forgotten():
    assert build_restart_delay_s([0.0, 1.0, 2.0, 100.0], 100.0) == 0.2
