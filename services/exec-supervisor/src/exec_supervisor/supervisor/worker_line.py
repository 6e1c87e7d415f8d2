"""The supervisor's line to its worker: launch, inputs, replies and stops arrive; calls, outputs and the result
leave."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, TypeVar

from everturn.execution.framing import FrameStream
from everturn.execution.messages import (
    PIPE_FRAME_BYTES,
    Boot,
    GatewayCall,
    InputsEnd,
    Launch,
    Stop,
    StopReason,
    StreamCredit,
    StreamData,
    StreamLost,
    StreamOpened,
    ToolReply,
)
from everturn.execution.records import BadMessage, MessageClass, build_message, parse_message
from exec_supervisor.supervisor.lifeline import LifelineCut
from exec_supervisor.supervisor.network import ProgramNetwork

_BOOT_TIMEOUT_S: Final = 10.0
_SEND_TIMEOUT_S: Final = 60.0
_MAX_QUEUED_INPUTS: Final = 16
_OF_STREAMS: Final = (StreamOpened, StreamData, StreamCredit, StreamLost)

MessageT = TypeVar("MessageT", bound=MessageClass)


class WorkerLine:
    """One run's frames from and to the worker; one task calls `run`, all other methods can be called from any task."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self._inputs: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED_INPUTS)
        self._waiting: dict[int, asyncio.Future[ToolReply]] = {}
        self._stopped: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()
        self.network: ProgramNetwork | None = None
        """What gets the messages of streams; without one they are invalid."""

    async def receive_boot(self) -> Boot:
        """Receive the first frame of a local supervisor. Raises LifelineCut, TimeoutError, BadMessage, FrameError."""
        async with asyncio.timeout(_BOOT_TIMEOUT_S):
            return await self._receive(Boot)

    async def receive_launch(self) -> Launch:
        """Receive the one run, without a time limit. Raises LifelineCut, BadMessage, FrameError."""
        return await self._receive(Launch)

    async def _receive(self, kind: type[MessageT]) -> MessageT:
        frame = await self._stream.receive()
        if frame is None:
            raise LifelineCut
        return parse_message({} if isinstance(frame, bytes) else frame, kind)

    async def run(self) -> None:
        """Receive frames until the worker closes the line. Always raises: LifelineCut, BadMessage or FrameError."""
        while (frame := await self._stream.receive()) is not None:
            if isinstance(frame, bytes):
                await self._inputs.put(frame)
                continue
            match parse_message(frame, InputsEnd, ToolReply, Stop, *_OF_STREAMS):
                case InputsEnd():
                    await self._inputs.put(None)
                case ToolReply() as reply:
                    if (answer := self._waiting.get(reply.id)) and not answer.done():
                        answer.set_result(reply)
                case Stop(reason=reason):
                    if not self._stopped.done():
                        self._stopped.set_result(reason)
                case message:
                    if self.network is None:
                        raise BadMessage("the run has no network")
                    self.network.receive(message)
        raise LifelineCut

    async def inputs(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the input tar."""
        while (piece := await self._inputs.get()) is not None:
            yield piece

    async def wait_for_stop(self) -> StopReason:
        """Return once the worker requests that the program be stopped."""
        return await asyncio.shield(self._stopped)

    async def call(self, call: GatewayCall) -> ToolReply:
        """Make the worker run a tool."""
        answer: asyncio.Future[ToolReply] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = answer
        try:
            await self.send(call)
            return await answer
        finally:
            del self._waiting[call.id]

    async def send(self, message: MessageClass) -> None:
        """Send a message. Raises TimeoutError when the worker doesn't read for a minute."""
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await self._stream.send(build_message(message), PIPE_FRAME_BYTES)

    async def send_raw(self, data: bytes) -> None:
        """Send a piece of the output tar, with the same timeout."""
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await self._stream.send_raw(data)
