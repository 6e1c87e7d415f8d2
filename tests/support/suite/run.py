"""Runs all tests in groups, prints one line as each group ends, then slow tests, failures, and the total."""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence

from suite.groups import check_every_test_has_a_group, load_test_files
from suite.lanes import Suite, repeat_failed, run_groups
from suite.outcomes import (
    GroupRun,
    is_flaky,
    is_good,
    render_failure,
    render_flaky,
    render_progress,
    render_slowest,
    render_total,
)

Show = Callable[[str], None]


async def run_suite(suite: Suite, show: Show) -> int:
    """Return the exit code: 0 when every group ran and every test passed, possibly in its second run.

    SIGTERM ends it like SIGINT does: no total is shown.

    Raises TestsWithoutGroup.
    """
    check_every_test_has_a_group(load_test_files(suite.root), suite.groups)
    suite.logs.mkdir(parents=True, exist_ok=True)
    if (task := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    started = time.monotonic()
    runs: list[GroupRun] = []
    try:
        await run_groups(suite, lambda run: take(run, runs, show))
        runs = await repeat_failed(suite, runs, suite.limit_s - (time.monotonic() - started))
        show(f"slowest:\n{render_slowest(runs)}")
    finally:
        show_failures(runs, show)
    if flaky := render_flaky(runs):
        show(flaky)
    show(render_total(runs, time.monotonic() - started))
    return 0 if all(is_good(run) or is_flaky(run) for run in runs) else 1


def take(run: GroupRun, runs: list[GroupRun], show: Show) -> None:
    runs.append(run)
    show(f"tests: {render_progress(run)}")


def show_failures(runs: Sequence[GroupRun], show: Show) -> None:
    for run in runs:
        if not is_good(run):
            show(render_failure(run))
