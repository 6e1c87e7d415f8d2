"""The checker of the fault tests is itself tested: it sees a run that is there, and names what stays of it."""

import asyncio
import os
import sys

import pytest
from leaks.detector import LeakedResources, watching
from leaks.processes import load_control_groups, load_descendants

SLEEPER = "import time; time.sleep(50)"
# The second one outlives the first, as something would that a killed supervisor did not end.
ORPHAN = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(50)'])"


async def test_an_orphan_is_found_named_and_ended():
    async with watching() as watch:
        parent = await asyncio.create_subprocess_exec(sys.executable, "-c", ORPHAN)
        await parent.wait()

        with pytest.raises(LeakedResources, match=r"process \d+: .*time\.sleep\(50\)"):
            await watch.wait_nothing_left(0.2)
        await watch.wait_nothing_left()


async def test_a_folder_that_a_process_named_is_missed_when_it_stays(tmp_path):
    folder = tmp_path / "everturn-run-0123456789abcdef"
    folder.mkdir()
    async with watching() as watch:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEPER, str(folder / "gateway"))
        watch.look()
        process.kill()
        await process.wait()

        with pytest.raises(LeakedResources, match=f"folder {folder}"):
            await watch.wait_nothing_left(0.2)
        folder.rmdir()
        await watch.wait_nothing_left()


async def test_what_was_there_before_is_not_a_leftover():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEPER)
    async with watching() as watch:
        await watch.wait_nothing_left(0.2)
    process.kill()
    await process.wait()


@pytest.mark.parametrize("sandbox", ["bubblewrap"], indirect=True)
async def test_a_run_of_the_real_sandbox_is_seen_with_all_it_has(run, sandbox, watch):
    stop = asyncio.Event()
    running = asyncio.create_task(run(SLEEPER, stop=stop, timeout_s=60))
    async with asyncio.timeout(20):
        while not any("executor" in str(process) for process in watch.look()):  # noqa: ASYNC110 - another's process
            await asyncio.sleep(0.02)

    left = watch.load_left()
    stop.set()
    await running

    assert any("exec_supervisor" in line for line in left)
    assert any(line.startswith("folder ") for line in left)
    assert any("control group" in line for line in left) == ("cgroup" in sandbox.posture.memory)


def test_our_own_control_group_is_not_one_of_a_run():
    ours = [process for process in load_descendants(os.getppid()) if process.pid == os.getpid()]

    assert len(ours) == 1
    assert load_control_groups(ours) == frozenset()
