"""The connection to one MCP server: one task opens it, keeps it and opens it again; calls of all turns share it.

The SDK's scopes must be entered and left in the same task, so only that task does so. A call sends its request from its
own task, and never ends the connection.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, Protocol, Self, cast

import anyio
import httpx2
import structlog
from mcp.client import Client, ClientSession, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    Implementation,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    PaginatedRequestParams,
    PingRequest,
    RequestId,
    Tool,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from chat_proc.mcp.http import (
    CONNECTION_LOST,
    NOT_SENT,
    SESSION_EXPIRED,
    SESSION_MAYBE_EXPIRED,
    UNREACHABLE,
    UNREADABLE,
    build_unreadable,
    find_transport_error,
)
from chat_proc.mcp.redacted import RedactedStream, describe
from everturn import __version__
from everturn.core.cancellation import GRACE_S, end_tasks
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.logging import Redactor
from everturn.core.loops import guarded
from everturn.core.metrics import MCP_CONNECTIONS

_log = structlog.get_logger(__name__)
# The SDK logs each message that it can't parse, as often as a server sends one.
logging.getLogger("mcp").setLevel(logging.CRITICAL)

MAX_TOOLS: Final = 200
"""Tools of one server that are read; those after them are not offered."""
MAX_PAGES: Final = 20
REFRESH_S: Final = 300.0
"""How often tools are listed again, for servers that don't announce changes."""
_OVER: Final = frozenset({UNREACHABLE, SESSION_EXPIRED, SESSION_MAYBE_EXPIRED, REQUEST_TIMEOUT})
"""Errors of a list of the tools that show that the connection is over: a server that hangs is started again."""
LIST_PAUSE_S: Final = 1.0
"""Between the announcement of a change and the listing of the tools."""
LISTEN_AGAIN_S: Final = 10.0
"""Before changes are awaited again; those that were missed meanwhile are then listed."""
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 60.0
LEAST_PAUSE_S: Final = 2.0
"""Least time between two attempts, even if a call wants the connection."""
STABLE_S: Final = 60.0
"""A connection that lasted so long is opened again after the first pause."""
CALL_WAITS_S: Final = 20.0
"""How long a call waits for a connection."""
FINISH_WITHIN_S: Final = 10.0
"""How long the calls of a connection that is over may take. A call that is made again waits longer."""
MAX_MESSAGE_CHARS: Final = 1_000
"""Of a server's error."""
_MAX_ERROR_CHARS: Final = 64 * 1024
"""Of an error that is searched for secrets on the event loop."""
CLOSE_S: Final = GRACE_S - 1.0
"""How long a connection may take to close before it is cancelled: less than a cancelled call has for it."""
_FAILURES: Final = (
    BaseExceptionGroup,
    EverturnError,
    MCPError,
    OSError,
    RuntimeError,
    ValueError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    httpx2.HTTPError,
)
"""What a server can cause in the SDK."""
_EMPTY: Final = TypeAdapter(EmptyResult)
_RESULT: Final = TypeAdapter[CallToolResult | InputRequiredResult](CallToolResult | InputRequiredResult)


class Progress(Protocol):
    """Receives what a server reports about a running call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class NotSent(EverturnError):
    """The call was not made."""


class CallFailed(EverturnError):
    """The server rejected the call."""


class ServerTransport(Protocol):
    """How a server is reached. `ended` is set when the connection is over."""

    ended: asyncio.Event

    def open(self) -> AbstractAsyncContextManager[Any]:
        """The streams for the SDK. Raises EverturnError."""
        ...

    def explain_end(self) -> str:
        """Why the connection ended, if that is known."""
        ...


class McpConnection:
    """`build_transport` is called for each attempt. `on_change` is called when the list of tools is another one. All
    that comes from the server is without the secrets of `redactor`."""

    def __init__(
        self,
        alias: str,
        build_transport: Callable[[], ServerTransport],
        *,
        start_timeout_s: float,
        on_change: Callable[[], Awaitable[None]],
        redactor: Redactor,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._redactor = redactor
        self._alias = alias
        self._build_transport = build_transport
        self._start_timeout_s = start_timeout_s
        self._on_change = on_change
        self._refresh_s = refresh_s
        self._session: ClientSession | None = None
        self._transport: ServerTransport | None = None
        self._connected = asyncio.Event()
        self._attempted = asyncio.Event()
        self._logged = ""
        self._wake = asyncio.Event()
        self._closing = self._broken = self._must_list = self._is_explained = self._has_logged_unread = False
        self._waiting_calls = self._open_calls = 0
        self._sent: dict[RequestId, asyncio.Task[Any] | None] = {}
        """The tasks that have sent the requests without an answer."""
        self._calling: set[asyncio.Task[Any] | None] = set()
        """Those of them that call a tool."""
        self.listed: tuple[Tool, ...] | None = None
        """The last known tools; None if the server was never reached."""
        self.problem = "The server has not answered yet."
        """Why there is no connection; empty while there is one."""

    @property
    def connected(self) -> asyncio.Event:
        """Set while there is a connection."""
        return self._connected

    @property
    def attempted(self) -> asyncio.Event:
        """Set once there was a connection, or the first attempt has failed."""
        return self._attempted

    async def run(self, *, is_kept: bool = True) -> None:
        """Keep the connection until `close`; unless `is_kept`, until it ends by itself or can't be opened."""
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while not self._closing:
            began_s = loop.time()
            with guarded("mcp_connection", health=None, server=self._alias):
                try:
                    await self._serve()
                except _FAILURES as error:
                    self._note_failure(error)
            if self._closing or not is_kept:
                return
            if loop.time() - began_s > STABLE_S:
                pause_s = FIRST_PAUSE_S
            await self._pause(began_s, pause_s * (0.75 + random.random() / 2))  # noqa: S311 - jitter, not a secret
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    async def close(self, task: asyncio.Task[None]) -> None:
        """End the connection, whose `run` is this task."""
        self._closing = True
        self._wake.set()
        try:
            await asyncio.wait({task}, timeout=CLOSE_S)
        finally:
            await end_tasks(task)

    async def call(
        self, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: Progress
    ) -> CallToolResult:
        """Call a tool. Cancelling the awaiting task cancels the call at the server.

        Raises NotSent if it surely was not made, CallFailed if the server rejected it, and Unavailable if the
        connection was lost or the reply can't be read, so that the call may have been made.
        """
        for attempt in (1, 2):
            session = await self._wait_for_session()
            self._open_calls += 1
            try:
                result = await self._send(session, tool, arguments, timeout_s, on_progress)
            except MCPError as error:
                if attempt == 1 and await self._is_session_expired(session, find_transport_error(error.error)):
                    self._break("The server has forgotten the session.", session)
                    continue
                raise self._translate(error, tool, session) from error
            finally:
                self._open_calls -= 1
                if self._broken:
                    self._wake.set()
            if isinstance(result, InputRequiredResult):
                raise CallFailed("The server asks for input (sampling, elicitation or roots), which is not supported.")
            return result
        raise AssertionError("unreachable")

    async def _is_session_expired(self, session: ClientSession, code: int | None) -> bool:
        """Whether the server does not know the session any more. Some say so with the code of any error, in which case
        another request shows it."""
        if code != SESSION_MAYBE_EXPIRED:
            return code == SESSION_EXPIRED
        try:
            await session.send_request(PingRequest(), _EMPTY, self._start_timeout_s)
        except (MCPError, ValidationError) as error:
            return isinstance(error, MCPError) and find_transport_error(error.error) in (
                SESSION_MAYBE_EXPIRED,
                SESSION_EXPIRED,
            )
        return False

    async def _send(
        self, session: ClientSession, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: Progress
    ) -> CallToolResult | InputRequiredResult:
        # Not `session.call_tool`, which checks the result against the server's schema on the event loop: a pattern of
        # that schema could take hours.
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        task = asyncio.current_task()
        self._calling.add(task)
        try:
            return await session.send_request(request, _RESULT, timeout_s, progress_callback=on_progress)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"][-3:]))
            text = f"The server's result is not one of the protocol: {place}: {first['msg']}"
            raise Unavailable(text[:MAX_MESSAGE_CHARS]) from error
        finally:
            self._calling.discard(task)
            for sent in [sent for sent, by in self._sent.items() if by is task]:
                del self._sent[sent]

    def _note_request(self, request: JSONRPCRequest) -> None:
        """The SDK sends a request in the task that waits for its answer."""
        self._sent[request.id] = asyncio.current_task()

    def _note_answer(self, answer: JSONRPCResponse | JSONRPCError) -> JSONRPCResponse | JSONRPCError:
        """Give an error without an id, which is a server's answer to a request that it could not read (JSON-RPC 2.0,
        section 5), to the one request that waits, if that is a call. Of several, it could be about any."""
        if answer.id is not None:
            self._sent.pop(answer.id, None)
            return answer
        if answer.error.code not in (PARSE_ERROR, INVALID_REQUEST):
            return answer
        if not self._has_logged_unread:
            self._has_logged_unread = True
            _log.warning("An MCP server could not read a request", server=self._alias, waiting=len(self._sent))
        waiting = [*self._sent.items()]
        if len(waiting) != 1 or waiting[0][1] not in self._calling:
            return answer
        text = f"It could not read a request: {answer.error.message}"
        return JSONRPCError(jsonrpc="2.0", id=waiting[0][0], error=build_unreadable(text))

    def _translate(self, error: MCPError, tool: str, session: ClientSession) -> EverturnError:
        code, message = find_transport_error(error.error), error.error.message[:MAX_MESSAGE_CHARS]
        if code == UNREACHABLE:
            self._break(message, session)
        if code in (UNREACHABLE, NOT_SENT):
            return NotSent(message)
        if code == SESSION_EXPIRED:
            return NotSent(f"The server keeps forgetting the session. {message}")
        if code == CONNECTION_LOST:
            return Unavailable(f"The connection to the MCP server was lost during the call: {message}")
        if code == REQUEST_TIMEOUT:
            # Shows whether the server still answers at all.
            self._list_again()
            return Unavailable(f"The MCP server did not answer the call of {tool} in time.")
        if code == UNREADABLE:
            return Unavailable(f"The MCP server gave no answer to the call of {tool} that can be read: {message}")
        return CallFailed(message)

    async def _wait_for_session(self) -> ClientSession:
        """The session. Raises NotSent if there is none within CALL_WAITS_S."""
        if self._transport is not None and self._transport.ended.is_set():
            self._set_session(None)
        if self._session is None:
            self._waiting_calls += 1
            self._wake.set()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CALL_WAITS_S):
                        await self._connected.wait()
            finally:
                self._waiting_calls -= 1
        if self._session is None:
            raise NotSent(self.problem or "There is no connection to the server.")
        return self._session

    def _break(self, why: str, session: ClientSession) -> None:
        """Open the connection again: a request of this session showed that it is over. If another request showed it
        before, another one may be open by now."""
        if self._session is not session:
            return
        self._note_problem(why)
        self._broken = True
        self._set_session(None)
        self._wake.set()

    def _note_problem(self, why: str) -> None:
        """Why there is no connection. Not all of it was a message: secrets can be in addresses and in what a program
        printed."""
        self.problem = describe(self._redactor, why)

    def _set_session(self, session: ClientSession | None) -> None:
        self._session = session
        if session is None:
            self._connected.clear()
        else:
            self._logged = ""
            self._connected.set()
            self._attempted.set()

    async def _serve(self) -> None:
        """One connection, from its beginning to its end."""
        transport = self._transport = self._build_transport()
        self._broken = self._must_list = self._is_explained = self._has_logged_unread = False
        self._sent.clear()
        client = Client(
            self._open(transport),
            read_timeout_seconds=self._start_timeout_s,
            message_handler=self._note_message,
            client_info=Implementation(name="everturn", version=__version__),
            cache=None,
        )
        try:
            async with client:
                await self._load_tools(client.session)
                self.problem = ""
                self._set_session(client.session)
                MCP_CONNECTIONS.labels("connected").inc()
                _log.info(
                    "Connected to an MCP server",
                    server=self._alias,
                    protocol=client.protocol_version,
                    tools=len(self.listed or ()),
                )
                listening = asyncio.create_task(self._listen(client.session))
                ending = asyncio.create_task(self._wake_at_end(transport))
                try:
                    await self._keep(client.session, transport)
                    await self._finish_calls(transport)
                finally:
                    self._set_session(None)
                    await end_tasks(listening, ending)
        finally:
            if transport.ended.is_set() and not self._closing and (why := transport.explain_end()):
                self._is_explained = True
                self._note_problem(why)
        if not self._closing:
            MCP_CONNECTIONS.labels("lost").inc()
            _log.warning("Lost the connection to an MCP server", server=self._alias, why=self.problem)

    @asynccontextmanager
    async def _open(self, transport: ServerTransport) -> AsyncGenerator[Any]:
        async with transport.open() as (incoming, outgoing):
            yield _Incoming(incoming, self._redactor, self._note_answer), _Outgoing(outgoing, self._note_request)

    async def _keep(self, session: ClientSession, transport: ServerTransport) -> None:
        """Return when the connection is over; list the tools again when they may have changed."""
        while not (self._closing or self._broken or transport.ended.is_set()):
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_s):
                    await self._wake.wait()
                    if not self._must_list:
                        continue
            # A server can announce a change as often as it likes.
            await asyncio.sleep(LIST_PAUSE_S)
            self._must_list = False
            try:
                await self._load_tools(session)
            except MCPError as error:
                why = error.error.message[:MAX_MESSAGE_CHARS]
                if find_transport_error(error.error) in _OVER:
                    self._break(why, session)
                else:
                    _log.warning("Could not list the tools of an MCP server", server=self._alias, error=why)

    async def _finish_calls(self, transport: ServerTransport) -> None:
        """Let each call of a session that is over get its own answer, up to FINISH_WITHIN_S: one may still run at the
        server, and another is to be made again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_WITHIN_S):
                while self._open_calls and not (self._closing or transport.ended.is_set()):
                    self._wake.clear()
                    await self._wake.wait()

    async def _load_tools(self, session: ClientSession) -> None:
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
            tools += page.tools[: MAX_TOOLS - len(tools)]
            cursor = page.next_cursor
            if not cursor or len(tools) >= MAX_TOOLS:
                break
        if self.listed is None or list(self.listed) != tools:
            self.listed = tuple(tools)
            await self._on_change()

    async def _listen(self, session: ClientSession) -> None:
        """Notice changes of the list; before the protocol of 2026-07-28 they arrive as messages."""
        while True:
            try:
                async with listen(session, tools_list_changed=True) as events:
                    # For a change between the first list and this moment.
                    self._list_again()
                    async for _ in events:
                        self._list_again()
            except ListenNotSupportedError:
                return
            except (MCPError, SubscriptionLost, TimeoutError) as error:
                if isinstance(error, MCPError) and error.error.code == METHOD_NOT_FOUND:
                    return
                _log.debug("A server no longer announces changes", server=self._alias, why=str(error)[:200])
            await asyncio.sleep(LISTEN_AGAIN_S)

    def _list_again(self) -> None:
        self._must_list = True
        self._wake.set()

    async def _wake_at_end(self, transport: ServerTransport) -> None:
        await transport.ended.wait()
        self._wake.set()

    async def _note_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._list_again()

    async def _pause(self, began_s: float, pause_s: float) -> None:
        """Wait before the next attempt; a call that waits for the connection shortens this."""
        now_s = asyncio.get_running_loop().time
        for until_s in (began_s + LEAST_PAUSE_S, now_s() + pause_s):
            self._wake.clear()
            while not self._closing and (left_s := until_s - now_s()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._wake.wait()
                self._wake.clear()
                if self._waiting_calls and now_s() >= began_s + LEAST_PAUSE_S:
                    return
            if self._waiting_calls:
                return

    def _note_failure(self, error: BaseException) -> None:
        self._attempted.set()
        if self._closing:  # our own end has cut the attempt short
            return
        root = _find_cause(error)
        if not self._is_explained:
            self._note_problem(root.detail if isinstance(root, EverturnError) else _explain(root))
        MCP_CONNECTIONS.labels("failed").inc()
        # A server that stays away is a line in the log for each reason, not for each attempt.
        log = _log.debug if self.problem == self._logged else _log.warning
        self._logged = self.problem
        log("Could not connect to an MCP server", server=self._alias, why=self.problem)


class _Incoming(RedactedStream):
    """The messages of `inner`, its answers as `note` returns them."""

    def __init__(
        self,
        inner: Any,
        redactor: Redactor,
        note: Callable[[JSONRPCResponse | JSONRPCError], JSONRPCResponse | JSONRPCError],
    ) -> None:
        super().__init__(inner, redactor)
        self._note = note

    async def receive(self) -> SessionMessage | Exception:
        item = await super().receive()
        if isinstance(item, Exception) or not isinstance(item.message, JSONRPCResponse | JSONRPCError):
            return item
        return replace(item, message=self._note(item.message))


class _Outgoing:
    """Sends to `inner`, and calls `note` with each request."""

    def __init__(self, inner: Any, note: Callable[[JSONRPCRequest], None]) -> None:
        self._inner = inner
        self._note = note

    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._note(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _find_cause(error: BaseException) -> BaseException:
    """The first error in the groups in which the SDK's tasks raise it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _explain(error: BaseException) -> str:
    if isinstance(error, MCPError):
        if error.error.code == REQUEST_TIMEOUT:
            return "The server does not answer."
        if error.error.code == METHOD_NOT_FOUND:
            return "The server has no tools, or no MCP server is at this address."
        return error.error.message[:MAX_MESSAGE_CHARS]
    if isinstance(error, ValidationError):
        # Its own text shows parts of what the server sent.
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"][-3:]))
        return f"An answer of the server is not one of the protocol: {place}: {first['msg']}"
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]
