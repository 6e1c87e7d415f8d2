"""The worker's end of one supervisor process: launch and inputs down, tool calls and outputs up, and the lifeline."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from everturn.errors import EverturnError
from everturn.ports.sandbox import ToolCaller
from everturn.wire.execution import (
    GATEWAY_FRAME_BYTES,
    MIB,
    PIPE_FRAME_BYTES,
    BadMessage,
    Finished,
    GatewayCall,
    InputsEnd,
    Launch,
    MessageClass,
    Posture,
    Ready,
    Stop,
    ToolReply,
    build_message,
    parse_message,
)
from everturn.wire.framing import FrameDecoder, FrameError, FrameStream

END_WITHIN_S: Final = 2.0
ALLOWANCE_S: Final = 150.0
"""What booting, inputs and outputs may take on top of the program's time before the supervisor counts as stuck."""

_DRAIN_BYTES: Final = 1 << 16
_MAX_ERROR_BYTES: Final = 4096
_MAX_MESSAGE_CHARS: Final = 500
_TAR_ALLOWANCE_BYTES: Final = MIB


class SupervisorFailed(Exception):
    """The supervisor did not bring the run to its end."""


@dataclass(frozen=True, slots=True)
class SupervisedRun:
    """What came back: the last frame and the output tar as it was sent."""

    finished: Finished
    tar: bytes


async def run_supervised(
    command: Sequence[str],
    launch: Launch,
    inputs: Sequence[bytes],
    call_tool: ToolCaller,
    stop: asyncio.Event,
) -> SupervisedRun:
    """Start a supervisor and see one run through. Raises SupervisorFailed, OSError.

    However this ends, the supervisor has ended too when it does: closing its stdin makes it kill the run.
    """
    async with _start(command) as process:
        line = _Line(process, launch.limits.output_bytes + _TAR_ALLOWANCE_BYTES)
        try:
            async with asyncio.timeout(launch.timeout_s + ALLOWANCE_S):
                return await line.run(launch, inputs, call_tool, stop)
        except TimeoutError as error:
            raise SupervisorFailed("the supervisor did not answer in time") from error


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


class _Line:
    def __init__(self, process: asyncio.subprocess.Process, max_tar_bytes: int) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the supervisor needs all three pipes")
        decoder = FrameDecoder(PIPE_FRAME_BYTES, allow_raw=True)
        self._stream = FrameStream(process.stdout, process.stdin, decoder)
        self._errors = process.stderr
        self._max_tar_bytes = max_tar_bytes
        self._tar = bytearray()
        self.posture: Posture | None = None

    async def run(
        self, launch: Launch, inputs: Sequence[bytes], call_tool: ToolCaller, stop: asyncio.Event
    ) -> SupervisedRun:
        async with asyncio.TaskGroup() as group:
            errors = group.create_task(self._read_errors())
            helpers = [
                group.create_task(self._send_launch(launch, inputs)),
                group.create_task(self._forward_stop(stop)),
            ]
            finished, problem = await self._receive_until_finished(group, call_tool)
            for task in helpers:
                task.cancel()
            if problem:
                errors.cancel()
        if finished is None:
            raise SupervisorFailed(problem or errors.result() or "the supervisor ended without a result")
        return SupervisedRun(finished, bytes(self._tar))

    async def _send_launch(self, launch: Launch, inputs: Sequence[bytes]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._send(launch)
            for piece in inputs:
                await self._stream.send_raw(piece)
            await self._send(InputsEnd())

    async def _forward_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._send(Stop("cancelled"))

    async def _receive_until_finished(
        self, group: asyncio.TaskGroup, call_tool: ToolCaller
    ) -> tuple[Finished | None, str]:
        """The last frame, or what was wrong with the line. Calls run as tasks and are cancelled with the run."""
        calls: set[asyncio.Task[None]] = set()
        try:
            while (frame := await self._stream.receive()) is not None:
                if isinstance(frame, bytes):
                    self._take_tar(frame)
                    continue
                match parse_message(frame, Ready, GatewayCall, Finished):
                    case Ready(posture=posture):
                        self.posture = posture
                    case GatewayCall() as call:
                        task = group.create_task(self._answer(call, call_tool))
                        calls.add(task)
                        task.add_done_callback(calls.discard)
                    case Finished() as finished:
                        return finished, ""
        except (FrameError, BadMessage, SupervisorFailed) as error:
            return None, f"the supervisor spoke nonsense: {error}"
        finally:
            for task in calls:
                task.cancel()
        return None, ""

    def _take_tar(self, piece: bytes) -> None:
        if len(self._tar) + len(piece) > self._max_tar_bytes:
            raise SupervisorFailed("more output bytes than the run may have")
        self._tar += piece

    async def _answer(self, call: GatewayCall, call_tool: ToolCaller) -> None:
        try:
            reply = await call_tool(call)
        except EverturnError as error:
            reply = ToolReply(call.id, False, None, "tool_error", str(error)[:_MAX_MESSAGE_CHARS])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            try:
                await self._stream.send(build_message(reply), GATEWAY_FRAME_BYTES)
            except FrameError as error:
                await self._send(ToolReply(call.id, False, None, "too_large", f"the result can't be sent: {error}"))

    async def _send(self, message: MessageClass) -> None:
        await self._stream.send(build_message(message), PIPE_FRAME_BYTES)

    async def _read_errors(self) -> str:
        kept = b""
        while chunk := await self._errors.read(_MAX_ERROR_BYTES):
            kept = (kept + chunk)[-_MAX_ERROR_BYTES:]
        return kept.decode("utf-8", "replace").strip()
