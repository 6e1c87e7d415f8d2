"""Starting and ending a child: its user, its group, and that nothing it started stays."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable

import pytest

from exec_supervisor.local.process import SandboxProcess, load_children, start_process

UID = 1001 if os.geteuid() == 0 else os.geteuid()


@pytest.fixture
async def start() -> AsyncIterator[Callable[[str], SandboxProcess]]:
    """Starts a shell script as a child, which is ended after the test."""
    children: list[SandboxProcess] = []

    def start_script(script: str) -> SandboxProcess:
        children.append(start_process(["/bin/sh", "-c", script], uid=UID, cgroup=None, pass_fds=[]))
        return children[-1]

    yield start_script
    for child in children:
        await child.end()
        child.close_streams()


async def test_it_runs_as_the_user_with_an_empty_environment_and_our_pipes(start):
    child = start("id -u; id -G; env; cat; echo bad >&2")
    reader, writer = await child.connect()
    errors = asyncio.create_task(child.read_errors())

    writer.write(b"typed\n")
    writer.close()
    lines = (await asyncio.wait_for(reader.read(), 15)).decode().splitlines()

    assert lines[0] == str(UID)
    assert "typed" in lines
    assert not [line for line in lines if "=" in line and not line.startswith(("PWD=", "OLDPWD=", "_=", "SHLVL="))]
    assert await errors == "bad"


async def test_ending_kills_it_and_waits(start):
    child = start("sleep 50")
    await child.connect()

    await asyncio.wait_for(child.end(), 10)
    await child.end()

    assert child.pid not in load_children(os.getpid())
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_it_can_be_ended_before_it_is_connected(start):
    child = start("sleep 50")

    await asyncio.wait_for(child.end(), 10)

    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_many_errors_do_not_block_it(start):
    child = start("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo done")
    reader, _ = await child.connect()
    errors = asyncio.create_task(child.read_errors())

    assert await asyncio.wait_for(reader.read(), 15) == b"done\n"
    assert await errors == "x" * 4096


async def test_a_command_that_can_not_be_run_is_an_os_error():
    with pytest.raises(OSError, match="nowhere"):
        start_process(["/nowhere"], uid=UID, cgroup=None, pass_fds=[])


async def test_ending_it_leaves_other_children_of_ours_alone(start):
    sibling = await asyncio.create_subprocess_exec("/bin/sleep", "50")
    child = start("sleep 50")

    await asyncio.wait_for(child.end(), 10)

    assert sibling.returncode is None
    sibling.kill()
    await sibling.wait()
