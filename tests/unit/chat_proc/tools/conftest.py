"""A store in memory and a way to call a tool as the loop does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from everturn.errors import Invalid, NotFound, Unavailable
from everturn.model.identity import Principal
from everturn.model.ids import CallId, ConversationId
from everturn.ports.tool import Tool, ToolCall, ToolContext, ToolOutcome
from everturn.testing.timelines import NOW, TimelineBuilder

CallTool = Callable[..., Awaitable[ToolOutcome]]


class MemoryObjects:
    """Objects in a dictionary; `broken` makes every call fail."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.broken = False

    async def save(self, key: str, data: bytes) -> None:
        await self.check()
        self.held[key] = data

    async def load(self, key: str, *, max_bytes: int) -> bytes:
        await self.check()
        if key not in self.held:
            raise NotFound(key)
        if len(self.held[key]) > max_bytes:
            raise Invalid("too large")
        return self.held[key]

    async def load_range(self, key: str, *, start: int, end: int) -> AsyncIterator[bytes]:
        yield (await self.load(key, max_bytes=end))[start:end]

    async def delete(self, keys: Sequence[str]) -> int:
        return sum(self.held.pop(key, None) is not None for key in keys)

    async def check(self) -> None:
        if self.broken:
            raise Unavailable("The object store is down.")


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


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
