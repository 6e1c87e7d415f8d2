"""Processes whose start is cancelled, and processes whose pipes stay open."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

import pytest

from everturn.core.subprocesses import run_command, wait_for_end, wait_for_start


async def end(process: Process) -> None:
    process.kill()
    await asyncio.sleep(0.01)
    await process.wait()


async def test_a_process_whose_start_is_cancelled_twice_is_ended() -> None:
    started: list[Process] = []
    has_started, go_on = asyncio.Event(), asyncio.Event()

    async def start() -> Process:
        started.append(await asyncio.create_subprocess_exec("sleep", "50"))
        has_started.set()
        await go_on.wait()
        return started[0]

    starting = asyncio.create_task(wait_for_start(start(), end))
    await has_started.wait()
    for _ in range(2):
        starting.cancel()
        await asyncio.sleep(0.01)
    assert not starting.done()
    go_on.set()
    while not starting.done():
        starting.cancel()
        await asyncio.sleep(0.001)

    assert starting.cancelled()
    assert started[0].returncode == -signal.SIGKILL


async def test_a_failed_start_does_not_replace_the_cancellation() -> None:
    go_on = asyncio.Event()

    async def start() -> Process:
        await go_on.wait()
        raise FileNotFoundError

    starting = asyncio.create_task(wait_for_start(start(), end))
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.sleep(0)
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_a_pipe_that_another_process_holds_does_not_delay_the_end_forever() -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 50 & exit", stdout=PIPE, start_new_session=True)

    assert not await wait_for_end(process, 0.1)

    os.killpg(process.pid, signal.SIGKILL)
    assert await wait_for_end(process)


async def test_a_command_that_takes_too_long_leaves_nothing_behind_that_it_started() -> None:
    started = "sleep 51 & echo $!; exit"

    with pytest.raises(TimeoutError):
        await run_command(("sh", "-c", f"{started} >&2"), timeout_s=0.3)

    assert "sleep\x0051" not in "".join(read_arguments())


async def test_a_command_gets_its_input_and_returns_its_output() -> None:
    assert await run_command(("sh", "-c", "cat; echo no >&2; exit 3"), b"yes", timeout_s=10) == (3, b"yes", b"no\n")


def read_arguments() -> list[str]:
    """Of all processes."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_text(errors="replace"))
    return found
