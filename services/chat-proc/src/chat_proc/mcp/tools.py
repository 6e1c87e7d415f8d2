"""The tools of an agent's MCP servers, as its turns are offered them."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, cast

import httpx2
import mcp_types as types
import structlog

from chat_proc.catalog.described import APPROVAL_NOTICE
from chat_proc.catalog.mcp_servers import (
    FindSecret,
    McpServer,
    OfferedServer,
    PersonalGrant,
    fill_template,
    find_references,
)
from chat_proc.catalog.tool import Tool, ToolCall, ToolEvents, ToolOutcome, ToolSpec
from chat_proc.channels.codec import MAX_NAME_CHARS, encode_name
from chat_proc.mcp.account_tools import build_personal_tools
from chat_proc.mcp.accounts import PersonalServer, PersonalTokens, Sealer, build_callback_url
from chat_proc.mcp.connection import CallFailed, McpConnection, NotSent, Progress, ServerTransport
from chat_proc.mcp.http import HostRules, HttpServer, TransportOptions
from chat_proc.mcp.oauth import ClientTokens
from chat_proc.mcp.results import build_outcome
from chat_proc.mcp.schemas import build_params, name_tool, read_arguments
from chat_proc.mcp.stdio import ChildCommand, ChildOptions, StdioProcess
from chat_proc.tools.web.resolver import Resolve
from everturn.core.cancellation import end_tasks
from everturn.core.errors import Conflict, EverturnError, Invalid
from everturn.core.logging import HIDDEN, Redactor
from everturn.files.objects import Objects
from everturn.mcp_connections.connections import ServerKey, TokenStore
from everturn.timeline.inert import escape_line, make_inert
from everturn.turns.model import Effect

_log = structlog.get_logger(__name__)

READY_WITHIN_S: Final = 10.0
"""How long an agent's first tools wait for its servers. Tools of slower ones are offered to later turns."""
HTTP_START_S: Final = 15.0
STDIO_START_S: Final = 60.0
"""How long a server may take for an answer other than to a call. A command may have to download its server first."""
MAX_SUMMARY_CHARS: Final = 200
MAX_GUIDE_CHARS: Final = 2_000
"""Limits of a tool's description; its parameters have their own."""
CALL_GRACE_S: Final = 2.0
"""The SDK's time limit of a call is so much longer than the tool's, which is the one that decides."""
ALL_ASK: Final = "Until this is corrected, each call of its tools needs approval."
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s")
_NOTES: Final = ("title", "description")


@dataclass(frozen=True, slots=True)
class Accounts:
    """What people's own accounts need. `callback_url` is where browsers return, `bundle_id` the bundle whose servers
    are opened."""

    store: TokenStore
    sealer: Sealer
    callback_url: str
    bundle_id: str


@dataclass(frozen=True, slots=True)
class McpDependencies:
    """What the servers of all agents share. `resolve` looks up hosts, `rules` are the operator's for them."""

    objects: Objects
    resolve: Resolve
    rules: HostRules = field(default_factory=HostRules)
    children: ChildOptions = field(default_factory=ChildOptions)
    accounts: Accounts | None = None


class McpTool:
    """One tool of a server, as it was listed. `name` is the server's own."""

    def __init__(
        self, spec: ToolSpec, name: str, connection: McpConnection, objects: Objects, redactor: Redactor
    ) -> None:
        self._spec = spec
        self._name = name
        self._connection = connection
        self._objects = objects
        self._redactor = redactor

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, call: ToolCall) -> ToolOutcome:
        events = ToolEvents(call, self._spec.tool_id)
        timeout_s = self._spec.timeout_s + CALL_GRACE_S
        try:
            arguments = read_arguments(call.params)
            result = await self._connection.call(self._name, arguments, timeout_s, _forward(events))
        except NotSent as error:
            return self._fail(f"The call was not made: {error.detail}")
        except CallFailed as error:
            return self._fail(f"The MCP server rejected the call: {error.detail}")
        finally:
            events.close()
        return await build_outcome(self._objects, call, result, self._redactor)

    def _fail(self, text: str) -> ToolOutcome:
        return ToolOutcome("error", escape_line(text), untrusted=True)


def _forward(events: ToolEvents) -> Progress:
    """Progress of the server as events of the call; those beyond the limit of a call are left out."""

    async def forward(progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        with suppress(Conflict):
            events.progress(f"{amount}: {message}" if message else amount)

    return forward


OnChange = Callable[[Sequence[Tool]], Awaitable[None]]


class Prepared(NamedTuple):
    """How a server is reached, what hides its secrets, and where its access tokens come from."""

    build: Callable[[], ServerTransport]
    redactor: Redactor
    tokens: ClientTokens | None = None


class AgentServers:
    """The servers of one agent while they are open. `tools` and `problems` change when a server or its list does."""

    def __init__(self, dependencies: McpDependencies, on_change: OnChange) -> None:
        self._dependencies = dependencies
        self._on_change = on_change
        self._tools: dict[str, tuple[Tool, ...]] = {}
        self._left_out: dict[str, tuple[str, ...]] = {}
        self._connections: dict[str, McpConnection] = {}
        self._tokens: dict[str, ClientTokens] = {}
        self._refused: dict[str, str] = {}
        self._announcing = asyncio.Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of all servers that were reached, in the order of the configuration."""
        return tuple(tool for tools in self._tools.values() for tool in tools)

    def list_problems(self) -> tuple[str, ...]:
        """What is wrong, one line each: servers without a connection, and tools that are not offered."""
        away = [
            f"mcp.{alias}: {problem}"
            for alias, connection in self._connections.items()
            if (problem := connection.problem or (alias in self._tokens and self._tokens[alias].problem))
        ]
        refused = (f"mcp.{alias}: {why}" for alias, why in self._refused.items())
        return (*refused, *away, *(line for lines in self._left_out.values() for line in lines))

    def list_away(self) -> tuple[str, ...]:
        """The aliases of servers that were never reached or can't be used, so that their tools are missing."""
        unreached = (alias for alias, connection in self._connections.items() if connection.listed is None)
        return (*self._refused, *unreached)

    async def wait_for_attempts(self, within_s: float) -> tuple[str, ...]:
        """Wait until each server was reached or has failed once, but no longer than this. Returns the aliases of those
        that have done neither."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for connection in self._connections.values():
                    await connection.attempted.wait()
        return tuple(alias for alias, connection in self._connections.items() if not connection.attempted.is_set())

    def refuse(self, alias: str, why: str) -> None:
        """Note a server that can't be used as configured."""
        self._refused[alias] = why
        _log.warning("An MCP server can't be used", server=alias, why=why)

    def add(self, offered: OfferedServer, prepared: Prepared) -> McpConnection:
        """Add a server; the caller runs the returned connection."""
        build, redactor, tokens = prepared
        if tokens is not None:
            self._tokens[offered.alias] = tokens

        async def rebuild() -> None:
            await self._rebuild(offered, connection, redactor)

        start_s = HTTP_START_S if offered.server.command is None else STDIO_START_S
        connection = McpConnection(offered.alias, build, start_timeout_s=start_s, on_change=rebuild, redactor=redactor)
        self._connections[offered.alias] = connection
        self._tools[offered.alias] = ()
        return connection

    async def add_personal(self, alias: str, tools: Sequence[Tool]) -> None:
        """Add the tools of a server at which each person has an account."""
        self._tools[alias] = tuple(tools)
        await self._announce()

    async def _rebuild(self, offered: OfferedServer, connection: McpConnection, redactor: Redactor) -> None:
        build = partial(build_tools, offered, connection.listed or (), connection, self._dependencies.objects, redactor)
        tools, left_out = await asyncio.to_thread(build)
        self._tools[offered.alias] = tools
        self._left_out[offered.alias] = left_out
        for line in left_out:
            _log.warning("A tool of an MCP server is not as configured", why=line)
        await self._announce()

    async def _announce(self) -> None:
        # One at a time, so that the last one has the tools of all servers.
        async with self._announcing:
            await self._on_change(self.tools)


def build_tools(
    offered: OfferedServer,
    listed: Sequence[types.Tool],
    connection: McpConnection,
    objects: Objects,
    redactor: Redactor,
) -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
    """The offered tools of a server, and a line for each that is not as configured. Takes up to 50 ms for each tool."""
    built: dict[str, McpTool] = {}
    left_out: list[str] = []
    missing = offered.server.find_missing([tool.name for tool in listed])
    # The name may be a mistake for that of any tool, so none is offered without the approval that it was to have.
    must_ask = any(key == "requires_approval" for key, _ in missing)
    server = offered.server.model_copy(update={"requires_approval": True}) if must_ask else offered.server
    for tool in listed:
        if not offered.server.offers(tool.name):
            continue
        tool_id = f"mcp.{offered.alias}.{name_tool(tool.name)}"
        try:
            if tool_id in built:
                raise Invalid("another tool of the server has the same id")
            if len(encode_name(tool_id)) > MAX_NAME_CHARS:
                left = MAX_NAME_CHARS - len(encode_name(f"mcp.{offered.alias}."))
                raise Invalid(f"its name is too long: at most {left} characters are allowed")
            built[tool_id] = build_tool(tool_id, tool, server, connection, redactor, objects)
        except Invalid as error:
            left_out.append(f"mcp.{offered.alias}: the tool {tool.name[:100]!a} is not offered: {error.detail}.")
    for key, name in missing:
        text = f"mcp.{offered.alias}: {key} names the tool {name[:100]!a}, which the server does not have."
        left_out.append(f"{text} {ALL_ASK}" if key == "requires_approval" else text)
    return tuple(built.values()), tuple(left_out)


def build_tool(
    tool_id: str,
    tool: types.Tool,
    server: McpServer,
    connection: McpConnection,
    redactor: Redactor,
    objects: Objects,
) -> McpTool:
    """One tool. Raises Invalid if it can't be offered. Takes up to 50 ms."""
    if HIDDEN in tool.name:
        raise Invalid("its name has a secret of the server")
    if _has_hidden_values(tool.input_schema):
        raise Invalid("its parameters have a secret of the server, so models could not call it as it asks")
    return McpTool(build_spec(tool_id, tool, server), tool.name, connection, objects, redactor)


def _has_hidden_values(schema: object) -> bool:
    """Whether a schema names arguments or values of them that were removed: a call could not have them. What only
    describes them may lack words."""
    rest = [schema]
    while rest:
        match value := rest.pop():
            case str():
                if HIDDEN in value:
                    return True
            case dict():
                fields = cast("dict[str, object]", value)
                rest += fields
                rest += [item for key, item in fields.items() if key not in _NOTES or not isinstance(item, str)]
            case list():
                rest += cast("list[object]", value)
            case _:
                pass
    return False


def build_spec(tool_id: str, tool: types.Tool, server: McpServer) -> ToolSpec:
    """The tool as it is offered. Raises Invalid if no model can be given its schema."""
    params = build_params(tool_id.replace(".", "_"), tool.input_schema)
    description = make_inert((tool.description or tool.title or tool.name).strip())[:MAX_GUIDE_CHARS]
    summary = _SENTENCE_END.split(" ".join(description.split()), maxsplit=1)[0]
    asks = server.asks_for(tool.name)
    effect = _find_effect(tool, server)
    return ToolSpec(
        tool_id=tool_id,
        summary=escape_line(summary[:MAX_SUMMARY_CHARS]),
        guide=f"{description}\n\n{APPROVAL_NOTICE}" if asks else description,
        params=params,
        effect=effect,
        strategy="exploration" if effect is Effect.PURE else "unknown",
        timeout_s=server.timeout_s,
        in_programs=server.in_programs and not asks,
        returns="its structured result, or its text",
        untrusted=True,
        requires_approval=asks,
        shows_schema=True,
        asks_after_untrusted=server.asks_after_untrusted and effect is not Effect.PURE,
    )


def _find_effect(tool: types.Tool, server: McpServer) -> Effect:
    if tool.name in server.effects:
        return server.effects[tool.name]
    hints = tool.annotations or types.ToolAnnotations()
    if hints.read_only_hint:
        return Effect.PURE
    return Effect.IDEMPOTENT if hints.idempotent_hint else Effect.IRREVERSIBLE


@asynccontextmanager
async def open_servers(
    chosen: Sequence[OfferedServer],
    dependencies: McpDependencies,
    *,
    find_secret: FindSecret,
    on_change: OnChange,
    files: Mapping[str, bytes] | None = None,
    ready_within_s: float = READY_WITHIN_S,
) -> AsyncGenerator[AgentServers]:
    """The servers of one agent, after those that answer in time were listed. `files` are the agent's, in whose copy its
    own commands run. `on_change` is awaited when tools have changed; it must not raise."""
    servers = AgentServers(dependencies, on_change)
    running: list[tuple[McpConnection, asyncio.Task[None]]] = []
    personal: list[PersonalTokens] = []
    ssl_context = await asyncio.to_thread(httpx2.create_ssl_context) if any(s.server.url for s in chosen) else None
    try:
        for offered in chosen:
            try:
                # In a thread, because secrets can be files.
                prepared = await asyncio.to_thread(
                    _prepare, offered, dependencies, find_secret, files or {}, ssl_context
                )
            except EverturnError as error:
                servers.refuse(offered.alias, error.detail)
                continue
            if isinstance(prepared, PersonalTokens):
                personal.append(prepared)
                build = partial(build_tool, objects=dependencies.objects)
                await servers.add_personal(offered.alias, build_personal_tools(prepared, build))
                continue
            connection = servers.add(offered, prepared)
            running.append((connection, asyncio.create_task(connection.run(), name=f"mcp {offered.alias}")))
        if running:
            waits = [asyncio.create_task(connection.connected.wait()) for connection, _ in running]
            try:
                await asyncio.wait(waits, timeout=ready_within_s)
            finally:
                await end_tasks(*waits)
        yield servers
    finally:
        closing = (connection.close(task) for connection, task in running)
        await asyncio.gather(*closing, *(tokens.close() for tokens in personal))


def _prepare(
    offered: OfferedServer,
    dependencies: McpDependencies,
    find_secret: FindSecret,
    files: Mapping[str, bytes],
    ssl_context: ssl.SSLContext | None,
) -> Prepared | PersonalTokens:
    """Raises Invalid for a secret that is not set."""
    server = offered.server
    templates = server.headers if server.url is not None else server.env
    values = {name: fill_template(text, find_secret) for name, text in templates.items()}
    reference = server.oauth.client_secret if server.oauth else None
    secret = fill_template(reference, find_secret) if reference else ""
    names = {name for text in templates.values() for name in find_references(text)}
    hidden = [*filter(None, (*map(find_secret, names), secret))]
    redactor = Redactor(hidden)
    if server.command is not None:
        command = ChildCommand(server.command, server.args, values, files if offered.owner else None)
        return Prepared(lambda: StdioProcess(offered.alias, command, dependencies.children, redactor), redactor)
    if bad := [name for name, value in values.items() if not value.isprintable() or not value.isascii()]:
        raise Invalid(f"The header {bad[0]} has characters that are not allowed in a header.")
    options = TransportOptions(
        dependencies.resolve,
        dependencies.rules,
        owner=f"mcp:{offered.owner}:{offered.alias}",
        ssl_context=ssl_context or httpx2.create_ssl_context(),
    )
    url, reply_timeout_s = server.url or "", server.timeout_s + 2 * CALL_GRACE_S
    if isinstance(server.oauth, PersonalGrant):
        if (accounts := dependencies.accounts) is None:
            raise Invalid("People can't connect accounts: set CONNECTIONS_KEY and CONNECTIONS_CALLBACK_URL.")
        key = ServerKey(accounts.bundle_id, offered.alias)
        personal = PersonalServer(
            offered=offered,
            key=key,
            grant=server.oauth,
            callback_url=build_callback_url(accounts.callback_url, key),
            secret=secret or None,
            url=url,
            headers=values,
            options=options,
            hidden=tuple(hidden),
            reply_timeout_s=reply_timeout_s,
        )
        return PersonalTokens(personal, accounts.store, accounts.sealer)
    tokens = server.oauth and ClientTokens(offered.alias, url, server.oauth, secret, options, redactor, hidden)
    return Prepared(
        lambda: HttpServer(url, values, options, reply_timeout_s=reply_timeout_s, tokens=tokens), redactor, tokens
    )
