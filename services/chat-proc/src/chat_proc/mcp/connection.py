"""The connection to one MCP server: one task opens it, keeps it and opens it again; calls of all turns share it.

The SDK's scopes must be entered and left in the same task, so only that task does so. A call sends its request from its
own task, and never ends the connection.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Protocol, cast

import anyio
import httpx2
import structlog
from mcp.client import Client, ClientSession, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from chat_proc.mcp.http import NOT_SENT, UNREACHABLE
from everturn import __version__
from everturn.core.cancellation import GRACE_S, end_tasks
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.logging import Redactor
from everturn.core.loops import guarded
from everturn.core.metrics import MCP_CONNECTIONS
from everturn.timeline.inert import escape_line

_log = structlog.get_logger(__name__)
# The SDK logs each message that it can't parse, as often as a server sends one.
logging.getLogger("mcp").setLevel(logging.CRITICAL)

MAX_TOOLS: Final = 200
"""Tools of one server that are read; those after them are not offered."""
MAX_PAGES: Final = 20
REFRESH_S: Final = 300.0
"""How often tools are listed again, for servers that don't announce changes."""
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
MAX_PROBLEM_CHARS: Final = 500
CLOSE_S: Final = GRACE_S - 1.0
"""How long a connection may take to close before it is cancelled: less than a cancelled call has for it."""
_GONE: Final = "Session terminated"
"""The SDK's message for a session that the server does not know (any more)."""
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
    """`build_transport` is called for each attempt. `on_change` is called when the list of tools is another one."""

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
        self._closing = self._broken = self._must_list = self._is_explained = False
        self._waiting_calls = 0
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
        connection was lost, so that the call may have been made.
        """
        for attempt in (1, 2):
            session = await self._wait_for_session()
            try:
                result = await self._send(session, tool, arguments, timeout_s, on_progress)
            except MCPError as error:
                if error.error.code == INVALID_REQUEST and error.error.message == _GONE and attempt == 1:
                    self._break("The server has forgotten the session.")
                    continue
                raise self._translate(error, tool) from error
            if isinstance(result, InputRequiredResult):
                raise CallFailed("The server asks for input (sampling, elicitation or roots), which is not supported.")
            return result
        raise NotSent("The server keeps forgetting the session.")

    async def _send(
        self, session: ClientSession, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: Progress
    ) -> CallToolResult | InputRequiredResult:
        # Not `session.call_tool`, which checks the result against the server's schema on the event loop: a pattern of
        # that schema could take hours.
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        try:
            return await session.send_request(request, _RESULT, timeout_s, progress_callback=on_progress)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"][-3:]))
            raise CallFailed(
                f"The server's result is not one of the protocol: {place}: {first['msg']}"[:500]
            ) from error

    def _translate(self, error: MCPError, tool: str) -> EverturnError:
        code, message = error.error.code, error.error.message[:1_000]
        if code == UNREACHABLE:
            self._break(message)
            return NotSent(message)
        if code == NOT_SENT:
            return NotSent(message)
        if code == CONNECTION_CLOSED:
            return Unavailable(f"The connection to the MCP server was lost during the call: {message}")
        if code == REQUEST_TIMEOUT:
            return Unavailable(f"The MCP server did not answer the call of {tool} in time.")
        if code == INVALID_REQUEST and message == _GONE:
            return NotSent("The server has forgotten the session.")
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

    def _break(self, why: str) -> None:
        """Open the connection again: a request showed that it is over."""
        self._note_problem(why)
        self._broken = True
        self._set_session(None)
        self._wake.set()

    def _note_problem(self, why: str) -> None:
        """Why there is no connection, as one line without secrets: servers write some of it."""
        self.problem = self._redactor.redact(escape_line(" ".join(why.split())))[:MAX_PROBLEM_CHARS]

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
        self._broken = self._must_list = self._is_explained = False
        client = Client(
            transport.open(),
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
                if error.error.code == UNREACHABLE or error.error.message == _GONE:
                    self._break(error.error.message)
                else:
                    _log.warning(
                        "Could not list the tools of an MCP server", server=self._alias, error=str(error)[:500]
                    )

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
        root = _find_cause(error)
        if not self._is_explained:
            self._note_problem(root.detail if isinstance(root, EverturnError) else _explain(root))
        MCP_CONNECTIONS.labels("failed").inc()
        self._attempted.set()
        # A server that stays away is a line in the log for each reason, not for each attempt.
        log = _log.debug if self.problem == self._logged else _log.warning
        self._logged = self.problem
        log("Could not connect to an MCP server", server=self._alias, why=self.problem)


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
        return error.error.message[:500]
    if isinstance(error, ValidationError):
        # Its own text shows parts of what the server sent, in which secrets would not be found.
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"][-3:]))
        return f"An answer of the server is not one of the protocol: {place}: {first['msg']}"[:500]
    return f"{type(error).__name__}: {error}"[:500]
