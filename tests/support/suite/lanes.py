"""Runs groups of tests as concurrent processes and owns these processes; none outlives it."""

import asyncio
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from everturn_local.privileges import build_child_prefix
from everturn_local.processes import KILLED_LIMIT_S, Child, kill_group
from suite.groups import Group, build_selection
from suite.outcomes import GroupRun, count_to_repeat, try_find_last_file

PYTEST_CRASHED = 3
STOP_LIMIT_S = 20.0
"""Time for the servers and containers of interrupted tests to stop."""

MAX_LOG_BYTES = 16 * 1024 * 1024

OPTIONS = ("-v", "--durations=10")
"""With -v the output names each test when it starts, so that a crash can be attributed."""

AGAIN_OPTIONS = ("--tb=native",)
"""Formatting a failure parses its source, which can itself fail in Python 3.11; this form doesn't parse."""

ONLY_FAILED = ("--last-failed", "--last-failed-no-failures=none")


@dataclass(frozen=True, slots=True)
class Suite:
    """What runs where. `limit_s` bounds the whole run; `logs` receives one file per group.

    `max_flaky`: up to this many failed tests are run a second time; if more fail, none is. `on_request`: whether the
    groups that run on request are included.
    """

    root: Path
    groups: Sequence[Group]
    logs: Path
    lanes: int
    limit_s: float
    env: Mapping[str, str]
    max_flaky: int = 0
    on_request: bool = False


async def run_groups(suite: Suite, take: Callable[[GroupRun], None]) -> None:
    """Run first the groups that can run concurrently, one per lane at a time; then the others, one after the other.

    `take` receives each group as it ends.
    """
    deadline = time.monotonic() + suite.limit_s
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that started us in the background made us ignore SIGINT, and the tests would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = [group for group in suite.groups if suite.on_request or not group.on_request]
    for alone, lanes in ((False, suite.lanes), (True, 1)):
        waiting = deque(group for group in chosen if group.alone is alone)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(lanes):
                tasks.create_task(_run_lane(suite, waiting, deadline, take))


async def _run_lane(suite: Suite, waiting: deque[Group], deadline: float, take: Callable[[GroupRun], None]) -> None:
    while waiting:
        take(await _run_group(suite, waiting.popleft(), deadline))


async def _run_group(suite: Suite, group: Group, deadline: float) -> GroupRun:
    started = time.monotonic()
    if started >= deadline:
        return GroupRun(group, None, 0.0, text="")
    log = _find_log(suite, group)
    cache = log.with_suffix(".cache")
    shutil.rmtree(cache, ignore_errors=True)
    code = await _run_pytest(suite, [*_keep_in(cache), *build_selection(group, suite.groups)], log, deadline)
    text, again = load_log(log), ""
    if code == PYTEST_CRASHED and (file := try_find_last_file(text)) is not None:
        log = log.with_suffix(".again.log")
        await _run_pytest(suite, [*AGAIN_OPTIONS, *_keep_in(cache), file], log, deadline)
        again = load_log(log)
    return GroupRun(group, code, time.monotonic() - started, text, again)


async def repeat_failed(suite: Suite, runs: Sequence[GroupRun], limit_s: float) -> list[GroupRun]:
    """Run failed tests once more, with nothing running at the same time; returns the runs with these results."""
    deadline = time.monotonic() + limit_s
    wanted = sum(map(count_to_repeat, runs))
    if not 0 < wanted <= suite.max_flaky:
        return list(runs)
    return [await _repeat_failed(suite, run, deadline) if count_to_repeat(run) else run for run in runs]


async def _repeat_failed(suite: Suite, run: GroupRun, deadline: float) -> GroupRun:
    log = _find_log(suite, run.group)
    cache, log = log.with_suffix(".cache"), log.with_suffix(".second.log")
    selection = build_selection(run.group, suite.groups)
    code = await _run_pytest(suite, [*ONLY_FAILED, *_keep_in(cache), *selection], log, deadline)
    return replace(run, second=load_log(log), second_exit_code=code)


def _find_log(suite: Suite, group: Group) -> Path:
    return suite.logs / f"{group.name.replace('/', '-')}.log"


def _keep_in(cache: Path) -> tuple[str, ...]:
    """Where pytest records failures: a folder per group, since groups run at the same time."""
    return ("-o", f"cache_dir={cache}")


async def _run_pytest(suite: Suite, arguments: Sequence[str], log: Path, deadline: float) -> int | None:
    """Run pytest; returns its exit code, None when the time was over. Its processes are gone in any case on return."""
    log.write_bytes(b"")
    # -P keeps the current folder off the import path, as the program pytest does.
    argv = [*build_child_prefix(death_signal="INT"), sys.executable, "-P", "-m", "pytest", f"--rootdir={suite.root}"]
    child = Child([*argv, *OPTIONS, *arguments], env=suite.env, log=log, folder=suite.root)
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await child.wait_exit()
    except TimeoutError:
        return None
    finally:
        await _end(child)


async def _end(child: Child) -> None:
    """Interrupt pytest first, so that it stops what its fixtures have started."""
    if child.exit_code is None:
        child.send(signal.SIGINT)
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait_exit(), STOP_LIMIT_S)
    kill_group(child.pid)
    await asyncio.wait_for(child.wait_exit(), KILLED_LIMIT_S)


def load_log(log: Path) -> str:
    """The content of a log; only the end of a very long one."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MAX_LOG_BYTES))
        return file.read().decode(errors="replace")
