"""The program's side of the gateway: one connection, many calls, answers matched by number.

Imported only by programs that have tools or use `await`: asyncio costs 40 ms at the start.
"""

import asyncio
import contextlib
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameError, FrameStream
from everturn.execution.messages import GATEWAY_FRAME_BYTES, GatewayCall, Hello, ToolReply, Welcome
from everturn.execution.records import build_message, parse_message

_CONNECT_TIMEOUT_S: Final = 5.0


class ToolError(Exception):
    """A tool call was refused or failed; `code` says how."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Gateway:
    """Calls tools through the run's socket. It connects at the first call, and again in a new event loop."""

    def __init__(self, path: str, nonce: str) -> None:
        self._path = path
        self._nonce = nonce
        self._opening: asyncio.Task[_Session] | None = None

    async def call(self, tool_id: str, arguments: dict[str, object]) -> object:
        """Return the tool's value. Raises ToolError."""
        session = await self._connect()
        return await session.call(tool_id, arguments)

    async def _connect(self) -> "_Session":
        # One task connects for all concurrent calls. A task belongs to its event loop, and so does its session.
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening.get_loop() is not loop or _is_spent(self._opening):
            self._opening = loop.create_task(_Session.open(self._path, self._nonce))
        return await asyncio.shield(self._opening)


def _is_spent(opening: "asyncio.Task[_Session]") -> bool:
    """Whether it failed, or its connection has been closed."""
    if not opening.done():
        return False
    return opening.cancelled() or opening.exception() is not None or not opening.result().usable


class _Session:
    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[ToolReply]] = {}
        self._calls = 0
        self._sending = asyncio.Lock()
        self._reading = asyncio.create_task(self._read_replies())

    @classmethod
    async def open(cls, path: str, nonce: str) -> "_Session":
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(path)
                stream = FrameStream(reader, writer, FrameDecoder(GATEWAY_FRAME_BYTES))
                await stream.send(build_message(Hello(nonce)))
                frame = await stream.receive()
                if not isinstance(frame, dict):
                    raise ConnectionResetError("the gateway closed the connection")
                parse_message(frame, Welcome)
        except OSError as error:
            raise ToolError("gateway", str(error)) from error
        return cls(stream)

    @property
    def usable(self) -> bool:
        """Whether it can still receive answers."""
        return not self._reading.done()

    async def call(self, tool_id: str, arguments: dict[str, object]) -> object:
        self._calls += 1
        number = self._calls
        answer: asyncio.Future[ToolReply] = self._loop.create_future()
        self._waiting[number] = answer
        try:
            await self._send(GatewayCall(number, tool_id, arguments))
            reply = await answer
        finally:
            self._waiting.pop(number, None)
        if not reply.ok:
            raise ToolError(reply.error_code, reply.error_message)
        return reply.value

    async def _send(self, call: GatewayCall) -> None:
        try:
            async with self._sending:
                await self._stream.send(build_message(call), GATEWAY_FRAME_BYTES)
        except FrameError as error:
            raise ToolError("bad_arguments", str(error)) from error
        except OSError as error:
            raise ToolError("gateway", str(error)) from error

    async def _read_replies(self) -> None:
        with contextlib.suppress(OSError, FrameError):
            while isinstance(frame := await self._stream.receive(), dict):
                reply = parse_message(frame, ToolReply)
                if (answer := self._waiting.get(reply.id)) and not answer.done():
                    answer.set_result(reply)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ToolError("gateway", "the gateway closed the connection"))
