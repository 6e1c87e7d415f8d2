"""A supervisor as a process of this machine: started, booted, and ended with everything it had."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from chat_proc.sandbox.supervised import BootedSupervisor, SupervisorFailed
from everturn.wire.execution import PIPE_FRAME_BYTES, Boot, Finished, LimitName, Posture, Ready
from everturn.wire.framing import FrameDecoder, FrameError, FrameStream
from everturn.wire.records import BadMessage, build_message, parse_message

END_WITHIN_S: Final = 2.0
BOOT_TIMEOUT_S: Final = 40.0
"""The supervisor gives its executor 30 s; its own start and the walls come on top."""

_DRAIN_BYTES: Final = 1 << 16
_MAX_ERROR_BYTES: Final = 4096


@contextlib.asynccontextmanager
async def open_supervisor(command: Sequence[str], boot: Boot) -> AsyncGenerator[BootedSupervisor]:
    """Start and boot one. Raises SupervisorFailed with what it said, OSError.

    When the block is left the supervisor has ended: closing its stdin makes it kill the run.
    """
    async with _start(command) as process:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the supervisor needs all three pipes")
        output, errors = process.stdout, process.stderr
        stream = FrameStream(output, process.stdin, FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True))
        posture = await boot_over(stream, boot, errors)
        yield BootedSupervisor(
            stream,
            posture,
            boot.limits,
            read_errors=lambda: read_tail(errors),
            load_hits=_see_no_hits,
            is_waiting=lambda: process.returncode is None and not output.at_eof(),
        )


async def boot_over(stream: FrameStream, boot: Boot, errors: asyncio.StreamReader) -> Posture:
    """Have a fresh supervisor boot; what it says of its walls. Raises SupervisorFailed."""
    try:
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await stream.send(build_message(boot), PIPE_FRAME_BYTES)
            frame = await stream.receive()
            if frame is None:
                raise SupervisorFailed(await read_tail(errors) or "the supervisor ended before it was ready")
            return read_ready({} if isinstance(frame, bytes) else frame)
    except TimeoutError as error:
        raise SupervisorFailed("the supervisor did not boot in time") from error
    except (FrameError, BadMessage) as error:
        raise SupervisorFailed(f"the supervisor spoke nonsense: {error}") from error


def read_ready(frame: dict[str, object]) -> Posture:
    """What a supervisor's first frame tells. Raises SupervisorFailed where it could not boot, BadMessage."""
    match parse_message(frame, Ready, Finished):
        case Ready(posture=posture):
            return posture
        case Finished(detail=detail):
            raise SupervisorFailed(detail)


async def read_tail(errors: asyncio.StreamReader) -> str:
    """The last 4 KiB of a stream, at its end."""
    kept = b""
    while chunk := await errors.read(_MAX_ERROR_BYTES):
        kept = (kept + chunk)[-_MAX_ERROR_BYTES:]
    return kept.decode("utf-8", "replace").strip()


async def _see_no_hits(finished: Finished) -> tuple[LimitName, ...]:
    """Such a supervisor makes the control group itself and tells what it saw there."""
    return ()


@contextlib.asynccontextmanager
async def _start(command: Sequence[str]) -> AsyncGenerator[asyncio.subprocess.Process]:
    starting = asyncio.create_task(_start_process(command))
    try:
        # Shielded: cancelled halfway through, asyncio forgets a process that is already there.
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise
    try:
        yield process
    finally:
        await _end(process)


async def _start_process(command: Sequence[str]) -> asyncio.subprocess.Process:
    # A session of its own: a Ctrl-C for the worker must not reach the run before the worker has decided what to do.
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Cut the lifeline and wait; a supervisor that is still there after 2 s is killed, and bubblewrap dies with it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_WITHIN_S):
            await _drain(process)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await _drain(process)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Wait for the end and throw away what is still in the pipes: asyncio sees no end while they hold unread bytes."""
    for pipe in (process.stdout, process.stderr):
        while pipe is not None and await pipe.read(_DRAIN_BYTES):
            pass
    await process.wait()
