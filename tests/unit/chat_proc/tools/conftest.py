"""A store in memory and a way to call a tool as the loop does."""

from collections.abc import Awaitable, Callable

import pytest

from chat_proc.tools.offered import ToolPorts
from everturn.model.identity import Principal
from everturn.model.ids import CallId, ConversationId
from everturn.ports.tool import Tool, ToolCall, ToolContext, ToolOutcome
from everturn.testing.memory.artifacts import MemoryArtifacts
from everturn.testing.memory.conversation_reader import MemoryConversationReader
from everturn.testing.memory.objects import MemoryObjects
from everturn.testing.memory.platform import MemoryPlatform
from everturn.testing.timelines import NOW, TimelineBuilder

CallTool = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def platform() -> MemoryPlatform:
    return MemoryPlatform()


@pytest.fixture
def tool_ports(objects: MemoryObjects, platform: MemoryPlatform) -> ToolPorts:
    return ToolPorts(objects, MemoryArtifacts(platform), MemoryConversationReader(platform))


@pytest.fixture
def call_tool() -> CallTool:
    """`await call_tool(tool, timeline, params)`, with the parameters checked as the loop checks them."""

    async def run(
        tool: Tool,
        timeline: TimelineBuilder,
        params: dict[str, object],
        *,
        call_id: str = "call_01890000-0000-7000-8000-000000000001",
        code: str | None = None,
    ) -> ToolOutcome:
        context = ToolContext(
            principal=Principal("acme", "main", "ann"),
            conversation_id=ConversationId("conv_1"),
            turn_id=timeline.turn_id,
            round=timeline.round,
            blocks=timeline.blocks,
            now=NOW,
        )
        return await tool.run(ToolCall(CallId(call_id), tool.spec.params.model_validate(params), code, context))

    return run
