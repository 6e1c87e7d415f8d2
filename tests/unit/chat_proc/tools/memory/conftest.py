"""A person's turns in memory, and a way to call a tool in one of her conversations."""

from collections.abc import Awaitable, Callable

import pytest

from chat_proc.catalog.tool import Tool, ToolCall, ToolContext, ToolOutcome
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn_testing.core import FixedClock, SequentialIds
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.memory.search_contract import MemoryDesk
from everturn_testing.memory.snippets import MemorySnippets
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.harness import Harness
from everturn_testing.turns.inbox import MemoryInbox
from everturn_testing.turns.leases import MemoryLeases
from everturn_testing.turns.live_turn import RecordingTurn
from everturn_testing.turns.timelines import MemoryTimelines

Call = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def desk() -> MemoryDesk:
    platform = MemoryPlatform(FixedClock())

    async def nothing(*_: object) -> None:
        """No lease runs out and nobody judges here."""

    harness = Harness(
        MemoryInbox(platform),
        MemoryLeases(platform, owner="worker-1"),
        MemoryLeases(platform, owner="worker-2"),
        MemoryTimelines(platform),
        SequentialIds(),
        expire_lease=nothing,
        give_feedback=nothing,
        age_lease=nothing,
        expire_holds=nothing,
    )
    snippets = MemorySnippets(platform)
    return MemoryDesk(harness, snippets, snippets)


@pytest.fixture
def call(desk: MemoryDesk) -> Call:
    async def run(
        tool: Tool, params: dict[str, object], conversation_id: str = "conv_1", turn_id: str = "turn_x"
    ) -> ToolOutcome:
        context = ToolContext(
            principal=desk.harness.principal,
            conversation_id=ConversationId(conversation_id),
            turn_id=TurnId(turn_id),
            round=1,
            blocks=(),
            now=NOW,
            pool=MemorySourcePool(),
            live=RecordingTurn(),
        )
        checked = tool.spec.params.model_validate(params)
        return await tool.run(ToolCall(CallId("call_1"), checked, None, context))

    return run
