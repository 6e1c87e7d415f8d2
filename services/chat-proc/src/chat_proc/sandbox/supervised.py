"""The worker's side of one booted supervisor: sends launch and inputs, receives tool calls and outputs."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from chat_proc.sandbox.network import RunNetwork
from chat_proc.sandbox.port import ToolCaller
from everturn.core.errors import EverturnError
from everturn.execution.framing import FrameError, FrameStream
from everturn.execution.messages import (
    GATEWAY_FRAME_BYTES,
    MIB,
    PIPE_FRAME_BYTES,
    Finished,
    GatewayCall,
    InputsEnd,
    Launch,
    LimitName,
    OpenStream,
    Posture,
    RunLimits,
    Stop,
    StreamCredit,
    StreamData,
    StreamLost,
    ToolReply,
)
from everturn.execution.records import BadMessage, MessageClass, build_message, parse_message

ALLOWANCE_S: Final = 150.0
"""How long inputs and outputs may take in addition to the program's time before the supervisor counts as stuck."""

_MAX_MESSAGE_CHARS: Final = 500
_OF_STREAMS: Final = (OpenStream, StreamData, StreamCredit, StreamLost)
_TAR_ALLOWANCE_BYTES: Final = MIB


class SupervisorFailed(Exception):
    """The supervisor could not complete the run. With `is_permanent`, the same start would fail again."""

    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class SupervisedRun:
    """The last frame and the output tar as received, up to 64 MiB and therefore never copied."""

    finished: Finished
    tar: bytearray


@dataclass(frozen=True, slots=True)
class BootedSupervisor:
    """A supervisor whose executor is confined and waits for its one run.

    `read_errors` returns the end of its stderr, once it has ended. `load_hits` returns the limits that its starter saw
    the kernel enforce; it is called with the last frame. `is_waiting` returns whether it still runs and has sent
    nothing since it booted. `image` is the engine's name of the executor's image.
    """

    stream: FrameStream
    posture: Posture
    limits: RunLimits
    read_errors: Callable[[], Coroutine[Any, Any, str]]
    load_hits: Callable[[Finished], Coroutine[Any, Any, tuple[LimitName, ...]]]
    is_waiting: Callable[[], bool]
    image: str = ""
    supervisor_image: str = ""


async def run_supervised(
    supervisor: BootedSupervisor,
    launch: Launch,
    inputs: Sequence[bytes],
    call_tool: ToolCaller,
    stop: asyncio.Event,
    network: RunNetwork | None = None,
) -> SupervisedRun:
    """Execute one run. Raises SupervisorFailed. In any case the caller has to end the supervisor."""
    connection = _SupervisorConnection(supervisor, launch.limits.output_bytes + _TAR_ALLOWANCE_BYTES, network)
    try:
        async with asyncio.timeout(launch.timeout_s + ALLOWANCE_S):
            done = await connection.run(launch, inputs, call_tool, stop)
            hits = await supervisor.load_hits(done.finished)
    except TimeoutError as error:
        raise SupervisorFailed("the supervisor did not answer in time") from error
    limits = tuple(dict.fromkeys((*done.finished.limits, *hits)))
    return replace(done, finished=replace(done.finished, limits=limits))


class _SupervisorConnection:
    """Tasks that send ignore OSError: the receiver finds the same broken connection and reports it."""

    def __init__(self, supervisor: BootedSupervisor, max_tar_bytes: int, network: RunNetwork | None) -> None:
        self._stream = supervisor.stream
        self._read_errors = supervisor.read_errors
        self._max_tar_bytes = max_tar_bytes
        self._network = network
        self._tar = bytearray()

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
        return SupervisedRun(finished, self._tar)

    async def _send_launch(self, launch: Launch, inputs: Sequence[bytes]) -> None:
        with contextlib.suppress(OSError):
            await self._send(launch)
            for piece in inputs:
                await self._stream.send_raw(piece)
            await self._send(InputsEnd())

    async def _forward_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        if self._network:
            self._network.close()
        with contextlib.suppress(OSError):
            await self._send(Stop("cancelled"))

    async def _receive_until_finished(
        self, group: asyncio.TaskGroup, call_tool: ToolCaller
    ) -> tuple[Finished | None, str]:
        """The last frame, or the problem with the line. Calls and connections run as tasks and are cancelled with the
        run."""
        tasks: set[asyncio.Task[None]] = set()

        def start(work: Coroutine[Any, Any, None]) -> None:
            task = group.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        try:
            while (frame := await self._stream.receive()) is not None:
                if isinstance(frame, bytes):
                    self._take_tar(frame)
                    continue
                match parse_message(frame, GatewayCall, Finished, *_OF_STREAMS):
                    case GatewayCall() as call:
                        start(self._answer(call, call_tool))
                    case Finished() as finished:
                        return finished, ""
                    case OpenStream() as request:
                        start(self._get_network().serve(request, self._send_to_stream))
                    case message:
                        self._get_network().receive(message)
        except (FrameError, BadMessage, SupervisorFailed) as error:
            return None, f"invalid frame from the supervisor: {error}"
        except OSError as error:
            return None, f"the connection to the supervisor broke: {type(error).__name__}"
        finally:
            for task in tasks:
                task.cancel()
        return None, ""

    def _take_tar(self, piece: bytes) -> None:
        if len(self._tar) + len(piece) > self._max_tar_bytes:
            raise SupervisorFailed("the output exceeds the limit of the run")
        self._tar += piece

    async def _answer(self, call: GatewayCall, call_tool: ToolCaller) -> None:
        try:
            reply = await call_tool(call)
        except EverturnError as error:
            reply = ToolReply(call.id, False, None, "tool_error", str(error)[:_MAX_MESSAGE_CHARS])
        with contextlib.suppress(OSError):
            try:
                await self._stream.send(build_message(reply), GATEWAY_FRAME_BYTES)
            except FrameError as error:
                await self._send(ToolReply(call.id, False, None, "too_large", f"the result can't be sent: {error}"))

    def _get_network(self) -> RunNetwork:
        if self._network is None:
            raise BadMessage("the run has no network")
        return self._network

    async def _send_to_stream(self, message: MessageClass) -> None:
        with contextlib.suppress(OSError):
            await self._send(message)

    async def _send(self, message: MessageClass) -> None:
        await self._stream.send(build_message(message), PIPE_FRAME_BYTES)
