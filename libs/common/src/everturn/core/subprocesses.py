"""Child processes that are never lost: not while they start, nor because their pipes stay open."""

import asyncio
import os
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

_log = structlog.get_logger(__name__)

END_WITHIN_S: Final = 2.0
_DRAIN_BYTES: Final = 1 << 16


async def wait_for_start(start: Coroutine[Any, Any, Process], end: Callable[[Process], Awaitable[None]]) -> Process:
    """What `start` returns. If cancelled meanwhile, `end` the process once it has started, then raise the cancellation.

    asyncio forgets a process whose start is cancelled midway, although it may be running. Neither an OSError of the
    start nor a second cancellation changes this.
    """
    starting = asyncio.create_task(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        ending = asyncio.create_task(_end_started(starting, end))
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({ending})
        if not ending.cancelled() and (error := ending.exception()):
            _log.error("Could not end a process whose start was cancelled", error=repr(error))
        raise


async def _end_started(starting: asyncio.Task[Process], end: Callable[[Process], Awaitable[None]]) -> None:
    with suppress(OSError):
        await end(await starting)


async def wait_for_end(process: Process, limit_s: float = END_WITHIN_S) -> bool:
    """Wait for the end and discard what is still in the pipes: asyncio reports no exit while they hold unread bytes.

    False when the process, or another one with its pipes, still runs after `limit_s`.
    """
    try:
        async with asyncio.timeout(limit_s):
            for pipe in (process.stdout, process.stderr):
                while pipe is not None and await pipe.read(_DRAIN_BYTES):
                    pass
            await process.wait()
    except TimeoutError:
        return False
    return True


async def kill_group(process: Process, *, has_just_ended: bool = False) -> None:
    """Kill a process that was started in a session of its own, with all that it has started, and wait for its end.

    One that has ended is left alone, because its number can be another process's by now, unless it `has_just_ended`:
    then what it has started is killed.
    """
    if process.returncode is None or has_just_ended:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if not await wait_for_end(process):
        _log.error("A killed process did not end", pid=process.pid, timeout_s=END_WITHIN_S)


async def run_command(
    command: Sequence[str], data: bytes = b"", *, timeout_s: float
) -> tuple[int | None, bytes, bytes]:
    """The exit status, output and error output of a program that gets `data` as input. Raises OSError if it does not
    start. After `timeout_s` it is killed, and TimeoutError raised.

    What it writes is not limited: run only programs that write little.
    """
    with tempfile.TemporaryFile() as source:  # a pipe would have to be written, also for a program that has ended
        await asyncio.to_thread(source.write, data)
        source.seek(0)
        process = await wait_for_start(
            asyncio.create_subprocess_exec(
                *command,
                stdin=source,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            ),
            kill_group,
        )
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await process.communicate()
    except BaseException:
        # What the program has started may hold its pipes.
        await kill_group(process, has_just_ended=True)
        raise
    return process.returncode, output, errors
