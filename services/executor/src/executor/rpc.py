"""The program's side of the gateway: the names by which it calls tools, `await alias.name(argument=value)`, and one
connection for many calls, whose answers are matched by number.

Imported only by programs that have tools or use `await`: asyncio costs 40 ms at the start.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from everturn.execution.framing import FrameDecoder, FrameError, FrameStream
from everturn.execution.messages import GATEWAY_FRAME_BYTES, GatewayCall, Hello, ToolReply, Welcome
from everturn.execution.records import BadMessage, build_message, parse_message

_CONNECT_TIMEOUT_S: Final = 5.0

Parameters = tuple[str, ...]

CallTool = Callable[[str, dict[str, object]], Awaitable[object]]
"""Calls a tool by its id and returns its value."""


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
    def __init__(self, stream: FrameStream, writer: asyncio.StreamWriter) -> None:
        self._stream = stream
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[ToolReply]] = {}
        self._calls = 0
        self._sending = asyncio.Lock()
        self._reading = asyncio.create_task(self._read_replies())

    @classmethod
    async def open(cls, path: str, nonce: str) -> "_Session":
        """Connect and exchange greetings. Raises ToolError; then the connection is closed."""
        with contextlib.ExitStack() as on_failure:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    reader, writer = await asyncio.open_unix_connection(path)
                    on_failure.callback(writer.close)
                    stream = FrameStream(reader, writer, FrameDecoder(GATEWAY_FRAME_BYTES))
                    await stream.send(build_message(Hello(nonce)))
                    frame = await stream.receive()
                    if not isinstance(frame, dict):
                        raise ConnectionResetError("the gateway closed the connection")
                    parse_message(frame, Welcome)
            except (OSError, FrameError, BadMessage) as error:
                raise ToolError("gateway", str(error) or "the gateway did not answer in time") from error
            on_failure.pop_all()
        return cls(stream, writer)

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
        """Resolve the calls that wait, until the connection ends; then fail the others, whatever ended it."""
        reason = "the gateway closed the connection"
        try:
            while isinstance(frame := await self._stream.receive(), dict):
                reply = parse_message(frame, ToolReply)
                if (answer := self._waiting.get(reply.id)) and not answer.done():
                    answer.set_result(reply)
        except (OSError, FrameError, BadMessage) as error:
            reason = f"the connection to the gateway failed: {error}"
        finally:
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ToolError("gateway", reason))


class ToolAlias:
    """All granted tools of one alias as asynchronous functions that accept keyword arguments. The alias of an MCP
    server is in that of all of them: `mcp.crm.find`."""

    def __init__(self, alias: str, names: Mapping[str, Parameters], call: CallTool) -> None:
        self._alias = alias
        self._names = names
        self._call = call

    def __getattr__(self, name: str) -> "Callable[..., Awaitable[object]] | ToolAlias":
        if inner := {key.partition(".")[2]: each for key, each in self._names.items() if key.startswith(f"{name}.")}:
            return ToolAlias(f"{self._alias}.{name}", inner, self._call)
        if name not in self._names:
            known = ", ".join(sorted(self._names))
            raise AttributeError(f"{self._alias} has no tool {name!r} in this run; it has: {known}")
        tool_id = f"{self._alias}.{name}"

        def call_tool(*values: object, **arguments: object) -> Awaitable[object]:
            return self._call(tool_id, {**name_values(tool_id, self._names[name], values, arguments), **arguments})

        call_tool.__name__ = name
        return call_tool

    def __dir__(self) -> list[str]:
        return sorted({name.partition(".")[0] for name in self._names})

    def __repr__(self) -> str:
        return f"<tools {self._alias}: {', '.join(sorted(self._names))}>"


def name_values(
    tool_id: str, parameters: Parameters, values: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, object]:
    """The positional arguments by name. Raises TypeError as a function call does."""
    if len(values) > len(parameters):
        known = ", ".join(parameters) or "none"
        raise TypeError(f"{tool_id} takes {len(parameters)} arguments, but {len(values)} were given; they are: {known}")
    placed = dict(zip(parameters, values, strict=False))
    if twice := sorted(placed.keys() & named.keys()):
        raise TypeError(f"{tool_id} got the argument {twice[0]!r} twice")
    return placed


def build_stubs(tool_ids: Sequence[str], call: CallTool, parameters: Sequence[Parameters] = ()) -> dict[str, ToolAlias]:
    """One object per alias; a tool id is `alias.name`. `parameters` has the parameter names of each tool, in order."""
    tools: dict[str, dict[str, Parameters]] = {}
    for tool_id, names in zip_longest(tool_ids, parameters[: len(tool_ids)], fillvalue=()):
        alias, _, name = str(tool_id).partition(".")
        tools.setdefault(alias, {})[name] = tuple(names)
    return {alias: ToolAlias(alias, found, call) for alias, found in tools.items()}
