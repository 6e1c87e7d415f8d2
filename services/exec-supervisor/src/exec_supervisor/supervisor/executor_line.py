"""The supervisor's line to its executor, which is not trusted: any unexpected input ends the line."""

import asyncio
from typing import Final, TypeVar

from everturn.execution.framing import Frame, FrameError, FrameStream
from everturn.execution.messages import PIPE_FRAME_BYTES, Booted, Report
from everturn.execution.records import BadMessage, MessageClass, build_message, parse_message

BOOT_TIMEOUT_S: Final = 30.0
"""For sandbox, interpreter and the imports of a warm executor: about 1 s, more on a busy machine."""

MessageT = TypeVar("MessageT", bound=MessageClass)


class Silent(Exception):
    """The executor has ended, or sent an invalid message."""


class ExecutorLine:
    """Sends and receives frames of one executor. Only one task can receive."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream

    async def boot(self) -> str:
        """Wait for the executor inside its sandbox; returns the runtime it reports. Raises Silent, TimeoutError."""
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            booted = await self.receive(Booted)
        if booted.failures:
            raise Silent(f"the sandbox is not closed: {', '.join(booted.failures)}")
        return booted.python

    async def receive_report(self) -> Report:
        """Wait for the end of the program or of the executor. Raises Silent."""
        return await self.receive(Report)

    async def send(self, message: MessageClass) -> None:
        """Send a message. Raises BrokenPipeError or ConnectionResetError."""
        await self._stream.send(build_message(message), PIPE_FRAME_BYTES)

    async def send_raw(self, data: bytes) -> None:
        """Send a piece of the input tar. Raises BrokenPipeError or ConnectionResetError."""
        await self._stream.send_raw(data)

    async def receive(self, kind: type[MessageT]) -> MessageT:
        """Return the next frame, which must be a message of this kind. Raises Silent."""
        frame = await self.receive_frame()
        if isinstance(frame, bytes):
            raise Silent("raw bytes instead of a message")
        return parse(frame, kind)

    async def receive_frame(self) -> Frame:
        """The next frame. Raises Silent."""
        try:
            frame = await self._stream.receive()
        except FrameError as error:
            raise Silent(str(error)) from error
        except OSError as error:
            raise Silent("the connection to the executor was lost") from error
        if frame is None:
            raise Silent("the executor ended")
        return frame


def parse(frame: dict[str, object], kind: type[MessageT]) -> MessageT:
    """Parse the message in a frame. Raises Silent."""
    try:
        return parse_message(frame, kind)
    except BadMessage as error:
        raise Silent(str(error)) from error
