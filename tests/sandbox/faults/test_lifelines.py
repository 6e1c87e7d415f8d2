"""F16: what happens to a run when those who started it or hold it go away. It ends, typed, and nothing of it stays."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.started_run import start_run
from leaks.detector import Watch
from leaks.processes import Process, load_descendants

PYTHON = Path(__file__).parents[3] / ".venv-sandbox" / "bin" / "python"
FINE = "print(sum(range(1000)))"
START_LIMIT_S = 30.0

WORKER = """
import asyncio, sys
from pathlib import Path
from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from chat_proc.sandbox.port import RunRequest
from everturn.execution.profiles import load_profiles

async def main():
    sandbox = await open_bubblewrap_sandbox(Path(sys.argv[1]), load_profiles(""))
    print("ready", flush=True)
    await sandbox.run(RunRequest("lifeline", "turn_1", "import time; time.sleep(50)", (), timeout_s=60), None)

asyncio.run(main())
"""


def is_supervisor(process: Process) -> bool:
    return "-m exec_supervisor" in process.command


def is_program(process: Process) -> bool:
    """The executor or its fork with the program, not bubblewrap, whose arguments name the executor too."""
    return "-m executor" in process.command and "--unshare-user" not in process.command


async def wait_for(watch: Watch, count: int, kind: Callable[[Process], bool]) -> list[Process]:
    """As many processes of a kind, in the order of their start."""
    async with asyncio.timeout(START_LIMIT_S):
        while len(found := [process for process in watch.look() if kind(process)]) < count:  # noqa: ASYNC110 - another's processes have no event here
            await asyncio.sleep(0.01)
    return sorted(found, key=lambda process: process.started)


@pytest.fixture
def only_bubblewrap(sandbox: Any) -> None:
    """For faults of processes that only this launcher has on this machine's side of the walls."""
    if sandbox.posture.launcher != "bubblewrap":
        pytest.skip("containers have their own tests of this fault")


async def test_cancelling_the_task_kills_the_run_within_two_seconds(sandbox, watch, only_bubblewrap):
    running = await start_run(sandbox)
    watch.look()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(running), 6)

    assert watch.load_left() == []


@pytest.mark.parametrize("delay_s", [0.0, 0.06, 0.12, 0.2, 0.4])
async def test_the_run_does_not_outlive_its_worker_whenever_that_is_killed(watch, delay_s, only_bubblewrap):
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(PYTHON), stdout=asyncio.subprocess.PIPE
    )
    assert await asyncio.wait_for(worker.stdout.readline(), START_LIMIT_S) == b"ready\n"
    await wait_for(watch, 1, is_supervisor)
    await asyncio.sleep(delay_s)  # no handshake: the kill is to come at any moment of the start

    worker.kill()
    await worker.wait()

    await watch.wait_nothing_left(6)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_supervisor_that_dies_takes_the_run_with_it_and_is_a_failed_run(
    sandbox, run, watch, number, only_bubblewrap
):
    running = await start_run(sandbox)
    [supervisor] = await wait_for(watch, 1, is_supervisor)

    os.kill(supervisor.pid, number)
    result = await asyncio.wait_for(running, 15)

    assert result.error.code == "sandbox_failed"
    assert (await run(FINE)).user_out_tail == "499500\n"
    if number == signal.SIGKILL:
        await wait_for_the_group_to_be_removed_by_a_later_run(run, watch)


async def wait_for_the_group_to_be_removed_by_a_later_run(run: Any, watch: Watch) -> None:
    """Nobody is left who could remove a killed supervisor's group at once; the next run that finds it old does."""
    for group in watch.groups:
        if group.exists():
            os.utime(group, (0, 0))
    await run(FINE)


async def test_an_executor_that_is_killed_is_a_failed_run(sandbox, watch, only_bubblewrap):
    running = await start_run(sandbox)
    executor, _ = await wait_for(watch, 2, is_program)

    os.kill(executor.pid, signal.SIGKILL)
    result = await asyncio.wait_for(running, 15)

    assert not result.ok
    assert (result.error.code, result.error.where) == ("killed", "sandbox")


async def test_a_frozen_executor_is_ended_at_the_limit(sandbox, watch, only_bubblewrap):
    running = await start_run(sandbox, timeout_s=5)
    executor, _ = await wait_for(watch, 2, is_program)

    os.kill(executor.pid, signal.SIGSTOP)
    result = await asyncio.wait_for(running, 20)

    assert result.error.code == "timeout"
    assert "its files are lost" in result.report_text


async def test_many_runs_leave_nothing_behind(run, watch):
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        await run("open(OUTPUT_DIR + '/a', 'w').write('a')", outputs=("a",))

    await watch.wait_nothing_left()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert not [process for process in load_descendants(os.getpid()) if is_program(process)]
