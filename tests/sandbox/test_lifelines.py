"""What happens to a run when those who started it go away, and that nothing of it stays on the machine."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[2] / ".venv-sandbox" / "bin" / "python"
SLEEPER = "import time; print('on'); time.sleep(50)"

WORKER = """
import asyncio, sys
from pathlib import Path
from chat_proc.sandbox.bubblewrap import open_bubblewrap_sandbox
from everturn.ports.sandbox import RunRequest

async def main():
    sandbox = await open_bubblewrap_sandbox(Path(sys.argv[1]))
    print("ready", flush=True)
    await sandbox.run(RunRequest(sys.argv[2], "turn_1", "import time; time.sleep(50)", (), timeout_s=60), None)

asyncio.run(main())
"""


def find_processes(mark: str) -> list[int]:
    """Processes that have `mark` in their command line: bubblewrap's two have the execution id."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def wait_until_gone(mark: str, timeout_s: float) -> float:
    """Seconds until no process has `mark`."""
    started = time.monotonic()
    while find_processes(mark):
        assert time.monotonic() - started < timeout_s, f"still there: {find_processes(mark)}"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


async def wait_until_started(mark: str) -> None:
    deadline = time.monotonic() + 10
    while len(find_processes(mark)) < 2:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def leftovers(mark: str) -> list[str]:
    """What runs whose execution id begins with `mark` have left on the machine."""
    places = [*Path("/run").glob(f"everturn-run-{mark}*"), *Path("/tmp").glob(f"everturn-run-{mark}*")]
    groups = [path for kind in ("memory", "pids") for path in Path(f"/sys/fs/cgroup/{kind}").rglob(f"everturn-{mark}*")]
    return [str(path) for path in (*places, *groups)]


async def test_cancelling_the_task_kills_the_run_within_two_seconds(run):
    running = asyncio.create_task(run(SLEEPER, timeout_s=60))
    mark = f"test-{os.getpid()}-1"
    await wait_until_started(mark)

    started = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert time.monotonic() - started < 2
    assert find_processes(mark) == []
    assert leftovers(mark) == []


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.06, 0.09, 0.12, 0.15, 0.2, 0.3, 0.5])
async def test_the_run_does_not_outlive_its_worker_whenever_that_is_killed(sandbox, delay_s):
    mark = f"lifeline-{os.getpid()}-{round(delay_s * 1000)}"
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(PYTHON), mark, stdout=asyncio.subprocess.PIPE
    )
    assert await asyncio.wait_for(worker.stdout.readline(), 20) == b"ready\n"
    supervisor = await wait_for_supervisor(worker.pid)
    await asyncio.sleep(delay_s)

    worker.kill()
    await worker.wait()

    assert await wait_until_dead(supervisor, 2) < 2
    assert find_processes(mark) == []
    assert leftovers(mark) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_supervisor_that_dies_takes_the_run_with_it_and_is_a_failed_run(run, number):
    running = asyncio.create_task(run(SLEEPER, timeout_s=60))
    mark = f"test-{os.getpid()}-1"
    await wait_until_started(mark)
    [supervisor] = [pid for pid in find_processes("exec_supervisor") if parent_of(pid) == os.getpid()]

    os.kill(supervisor, number)
    result = await asyncio.wait_for(running, 5)

    assert result.error.code == "sandbox_failed"
    assert await wait_until_gone(mark, 2) < 2
    assert not [path for path in leftovers(mark) if "everturn-run" in path]


async def wait_for_supervisor(worker_pid: int) -> int:
    deadline = time.monotonic() + 10
    while True:
        found = [pid for pid in find_processes("exec_supervisor") if parent_of(pid) == worker_pid]
        if found:
            return found[0]
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def wait_until_dead(pid: int, timeout_s: float) -> float:
    started = time.monotonic()
    while is_alive(pid) and time.monotonic() - started < timeout_s:  # noqa: ASYNC110 - another's process has no event
        await asyncio.sleep(0.02)
    return time.monotonic() - started


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent to take note of its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_many_runs_leave_nothing_behind(run):
    mark = f"test-{os.getpid()}-"
    # A supervisor that a test before this one killed may have left its empty control group for a later run to remove.
    older = leftovers(mark)
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        await run("open(OUTPUT_DIR + '/a', 'w').write('a')", outputs=("a",))

    assert [path for path in leftovers(mark) if path not in older] == []
    assert len(os.listdir("/proc/self/fd")) <= before + 2
