"""Child processes that are never lost: not while they start, nor because their pipes stay open."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine
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
