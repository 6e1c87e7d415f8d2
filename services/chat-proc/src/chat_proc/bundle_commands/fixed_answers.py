"""Tools of an MCP server whose answers a test fixes: offered as the server's own, without the server."""

from collections.abc import Mapping

import mcp_types as types

from chat_proc.bundle_commands.cases import McpAnswer
from chat_proc.catalog.mcp_servers import OfferedServer
from chat_proc.catalog.tool import Tool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.mcp.results import build_outcome
from chat_proc.mcp.schemas import name_tool
from chat_proc.mcp.tools import build_spec
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.files.objects import Objects


class FixedTool:
    """Answers every call with the same result."""

    def __init__(self, spec: ToolSpec, answer: McpAnswer, objects: Objects) -> None:
        self._spec = spec
        self._answer = answer
        self._objects = objects

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, call: ToolCall) -> ToolOutcome:
        answer = self._answer
        text = answer.error or answer.text
        result = types.CallToolResult(
            content=[types.TextContent(type="text", text=text)] if text else [],
            structured_content=None if answer.value is None else dict(answer.value),
            is_error=bool(answer.error),
        )
        return await build_outcome(self._objects, call, result, Redactor())


def build_fixed_tools(offered: OfferedServer, answers: Mapping[str, McpAnswer], objects: Objects) -> tuple[Tool, ...]:
    """The tools of one server, by its names for them or by those in their ids. Any arguments are accepted, because only
    the server knows its schemas. Raises Invalid if the configuration does not offer one of them."""
    tools: list[Tool] = []
    configured = {name_tool(name): name for name in offered.server.tools}
    for given, answer in answers.items():
        name = configured.get(given, given)
        tool_id = f"mcp.{offered.alias}.{name_tool(name)}"
        if not offered.server.offers(name):
            raise Invalid(f"mcp_answers: [mcp.{offered.alias}] of the bundle does not offer the tool {name!a}.")
        listed = types.Tool(name=name, description="Answers as the test says.", input_schema={"type": "object"})
        tools.append(FixedTool(build_spec(tool_id, listed, offered.server), answer, objects))
    return tuple(tools)
