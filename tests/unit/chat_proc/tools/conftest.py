"""A store in memory and a way to call a tool as the loop does."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.catalog.tool import LiveTurn, SourcePool, Tool, ToolCall, ToolContext, ToolOutcome
from chat_proc.tools.context.read import ReadTool
from chat_proc.tools.context.resolve import ReadPorts
from chat_proc.tools.offered import ToolPorts
from everturn.core.ids import CallId, ConversationId
from everturn.skills.model import NO_SKILLS, Skills
from everturn.timeline.blocks import CheckoutBody
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.files.stored_files import OWNER, StoredFiles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, TimelineBuilder
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.live_turn import RecordingTurn
from everturn_testing.turns.timelines import MemoryTimelines

Play = Callable[..., Awaitable[ToolOutcome]]
CallTool = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def platform() -> MemoryPlatform:
    return MemoryPlatform()


@pytest.fixture
def tool_ports(objects: MemoryObjects, platform: MemoryPlatform) -> ToolPorts:
    return ToolPorts(
        objects,
        AttachmentReader(objects),
        MemoryArtifacts(platform),
        MemoryConversationReader(platform),
        MemoryTimelines(platform),
    )


@pytest.fixture
def read_tool(tool_ports: ToolPorts) -> ReadTool:
    ports = ReadPorts(tool_ports.artifacts, tool_ports.reader, tool_ports.sources)
    return ReadTool(tool_ports.objects, tool_ports.attachments, ports)


@pytest.fixture
def stored(objects: MemoryObjects, platform: MemoryPlatform) -> StoredFiles:
    return StoredFiles(objects=objects, platform=platform)


@pytest.fixture
def play(call_tool: CallTool, stored: StoredFiles) -> Play:
    """`await play(tool, timeline, params)`: a call whose result and records go to the timeline and to the rows."""
    numbers = count(1)

    async def run(tool: Tool, timeline: TimelineBuilder, params: dict[str, object], **kwargs: Any) -> ToolOutcome:
        call_id = f"call_01890000-0000-7000-8000-{next(numbers):012d}"
        timeline.call(call_id, tool.spec.tool_id, params)
        outcome = await call_tool(tool, timeline, params, call_id=call_id, **kwargs)
        timeline.result(
            call_id, tool.spec.tool_id, outcome.text, *outcome.artifacts, data=outcome.data, status=outcome.status
        )
        stored.remember(*outcome.artifacts)
        for record in outcome.records:
            timeline.add(record.type, record.ref, record.body)
            if isinstance(record.body, CheckoutBody):
                stored.remember(*record.body.artifacts, *record.body.removed)
        return outcome

    return run


@pytest.fixture
def skills() -> Skills:
    """Those of the turn."""
    return NO_SKILLS


@pytest.fixture
def call_tool(skills: Skills) -> CallTool:
    """`await call_tool(tool, timeline, params)`, with the parameters checked as the loop checks them."""

    async def run(
        tool: Tool,
        timeline: TimelineBuilder,
        params: dict[str, object],
        *,
        call_id: str = "call_01890000-0000-7000-8000-000000000001",
        code: str | None = None,
        pool: SourcePool | None = None,
        live: LiveTurn | None = None,
        stop: asyncio.Event | None = None,
    ) -> ToolOutcome:
        context = ToolContext(
            principal=OWNER,
            conversation_id=ConversationId("conv_1"),
            turn_id=timeline.turn_id,
            round=timeline.round,
            blocks=timeline.blocks,
            now=NOW,
            pool=pool or MemorySourcePool(),
            live=live or RecordingTurn(),
            skills=skills,
        )
        checked = tool.spec.params.model_validate(params)
        return await tool.run(ToolCall(CallId(call_id), checked, code, context, stop or asyncio.Event()))

    return run
