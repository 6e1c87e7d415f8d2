"""The tools of an MCP server at which each person has an account: `list_tools` and `call_tool`, which work for the
person of the turn.

The server's own tools differ from person to person, and are not known before one is connected. Each call has a
connection of its own, so that nothing of one person is kept where the call of another could find it.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, cast

from mcp_types import Tool as ListedTool
from pydantic import BaseModel, ConfigDict, Field

from chat_proc.catalog.described import APPROVAL_NOTICE
from chat_proc.catalog.mcp_servers import McpServer
from chat_proc.catalog.tool import Tool, ToolCall, ToolOutcome, ToolRegistry, ToolSpec
from chat_proc.mcp.accounts import LEASE_S, PersonalTokens, PersonSource
from chat_proc.mcp.connection import CALL_WAITS_S, McpConnection
from chat_proc.mcp.http import HttpServer, NoToken
from chat_proc.mcp.redacted import describe
from everturn.core.cancellation import end_tasks
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.timeline.inert import escape_line, is_blank, make_inert
from everturn.turns.model import Effect

MAX_LISTED_CHARS: Final = 100_000
"""Names, descriptions and schemas of all tools of one server; those after them are left out."""
MAX_NAME_CHARS: Final = 200
MAX_NAMES_CHARS: Final = 10_000
"""The names of tools in an error."""
START_S: Final = 15.0


class ListParams(BaseModel):
    """No parameters."""

    model_config = ConfigDict(extra="forbid")


class CallParams(BaseModel):
    """Which tool of the server is called."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=MAX_NAME_CHARS)
    arguments: dict[str, Any] = {}


BuildTool = Callable[[str, ListedTool, McpServer, McpConnection, Redactor], Tool]
"""`build_tool` without `objects`."""


class PersonalTool:
    """`list_tools` or `call_tool` of a server."""

    def __init__(self, name: Literal["list_tools", "call_tool"], tokens: PersonalTokens, build: BuildTool) -> None:
        self._name = name
        self._tokens = tokens
        self._build = build
        self._spec = _build_spec(name, tokens)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, call: ToolCall) -> ToolOutcome:
        server = self._tokens.server
        redactor = Redactor(server.hidden)
        source = PersonSource(self._tokens, call.context.principal, redactor)
        try:
            await source.find()
            return await self._run_connected(call, source, redactor)
        except (NoToken, Invalid) as error:
            return ToolOutcome("error", describe(redactor, error.detail, MAX_LISTED_CHARS), untrusted=True)

    async def _run_connected(self, call: ToolCall, source: PersonSource, redactor: Redactor) -> ToolOutcome:
        server = self._tokens.server

        def build_transport() -> HttpServer:
            return HttpServer(
                server.url, server.headers, server.options, reply_timeout_s=server.reply_timeout_s, tokens=source
            )

        async def ignore_change() -> None: ...

        connection = McpConnection(
            server.offered.alias, build_transport, start_timeout_s=START_S, on_change=ignore_change, redactor=redactor
        )
        running = asyncio.create_task(connection.run(is_kept=False), name=f"mcp {server.offered.alias} of a person")
        try:
            connecting = asyncio.create_task(connection.connected.wait())
            try:
                await asyncio.wait((running, connecting), timeout=CALL_WAITS_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await end_tasks(connecting)
            if connection.listed is None:
                raise Invalid(f"The call was not made: {connection.problem}")
            listed = [tool for tool in connection.listed if server.offered.server.offers(tool.name)]
            is_list, asked = self._name == "list_tools", cast(CallParams, call.params)

            def build(tool: ListedTool) -> Tool:
                _check_name(tool.name)
                return self._build(self._spec.tool_id, tool, server.offered.server, connection, redactor)

            # In a thread: models of all tools can take seconds.
            if is_list:
                return await asyncio.to_thread(_describe, listed, build)
            chosen = _choose(asked.name, listed)
            try:
                registry = ToolRegistry([await asyncio.to_thread(build, chosen)])
            except Invalid as error:
                raise Invalid(f"The tool {chosen.name[:80]!a} can't be called: {error.detail}.") from error
            params = registry.check_params(self._spec.tool_id, asked.arguments)
            return await registry.run(self._spec.tool_id, replace(call, params=params))
        finally:
            await connection.close(running)


def _choose(name: str, listed: Sequence[ListedTool]) -> ListedTool:
    """The tool with this name, which is the server's own: rules of the bundle are about that."""
    chosen = next((tool for tool in listed if tool.name == name), None)
    if chosen is None:
        known = ", ".join(tool.name for tool in listed)[:MAX_NAMES_CHARS]
        raise Invalid(f"The server has no tool {name[:80]!a}. It has: {known or 'none'}.")
    return chosen


def _check_name(name: str) -> None:
    """Raise Invalid for a name that can't be shown as it is, or not be given back."""
    if len(name) > MAX_NAME_CHARS:
        raise Invalid(f"its name has more than {MAX_NAME_CHARS} characters")
    if is_blank(name):
        raise Invalid("it has no name")
    # Two names that look the same could be ruled differently.
    if escape_line(name) != name or name != name.strip() or any(map(is_blank, name.replace(" ", ""))):
        raise Invalid("its name can't be shown as it is")


def _build_spec(name: Literal["list_tools", "call_tool"], tokens: PersonalTokens) -> ToolSpec:
    server = tokens.server.offered.server
    alias, title = tokens.server.offered.alias, escape_line(tokens.server.grant.title)
    whose = f"the person's account at {title}"
    if name == "list_tools":
        summary = f"List what can be done with {whose}."
        guide = f"{summary} Returns the names, descriptions and parameters of the tools that `call_tool` can call."
    else:
        summary = f"Do something with {whose}."
        guide = (
            f"{summary} `name` is one of the tools that `mcp.{alias}.list_tools` lists, and `arguments` are its "
            "parameters."
        )
    is_list = name == "list_tools"
    asks = not is_list and server.requires_approval is True
    return ToolSpec(
        tool_id=f"mcp.{alias}.{name}",
        summary=summary,
        guide=f"{guide}\n\n{APPROVAL_NOTICE}" if asks else guide,
        params=ListParams if is_list else CallParams,
        effect=Effect.PURE if is_list else Effect.IRREVERSIBLE,
        strategy="exploration" if is_list else "unknown",
        timeout_s=server.timeout_s + CALL_WAITS_S + LEASE_S,
        in_programs=server.in_programs and not asks,
        returns="its structured result, or its text",
        untrusted=True,
        requires_approval=asks,
        shows_schema=True,
        asks_after_untrusted=server.asks_after_untrusted and not is_list,
        connector=tokens,
    )


def _describe(listed: Sequence[ListedTool], build: Callable[[ListedTool], Tool]) -> ToolOutcome:
    """The tools as text, and for programs as a value."""
    entries: list[dict[str, Any]] = []
    lines: list[str] = []
    left = MAX_LISTED_CHARS
    # Of two with the same name, the first is called.
    tools = {tool.name: tool for tool in reversed(listed)}
    for name in dict.fromkeys(tool.name for tool in listed):
        entry: dict[str, Any] | None = None
        try:
            guide, parameters = build(tools[name]).spec.guide, tools[name].input_schema
        except Invalid as error:
            line = f"The tool {name[:80]!a} can't be called: {error.detail}."
        else:
            line = f"{name}: {guide}\nParameters: {json.dumps(parameters, ensure_ascii=False)}"
            entry = {"name": name, "description": guide, "parameters": parameters}
        left -= len(line)
        if left < 0:
            lines.append(f"{len(tools) - len(lines)} more tools are left out.")
            break
        lines.append(line)
        entries += [entry] if entry else []
    text = make_inert("\n\n".join(lines)) or "The server has no tools."
    return ToolOutcome("ok", text, value={"tools": entries}, untrusted=True)


def build_personal_tools(tokens: PersonalTokens, build: BuildTool) -> tuple[PersonalTool, ...]:
    """Both tools of a server. `build` makes one of a connection."""
    return PersonalTool("list_tools", tokens, build), PersonalTool("call_tool", tokens, build)
