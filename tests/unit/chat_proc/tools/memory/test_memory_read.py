"""`memory.read` over memories in memory."""

import pytest

from chat_proc.tools.memory.user_memories import MemoryReadTool
from everturn.core.errors import Unavailable
from everturn_testing.memory.user_memories import MemoryUserMemories
from everturn_testing.memory.user_memories_contract import remembered


@pytest.fixture
def memories() -> MemoryUserMemories:
    return MemoryUserMemories()


async def test_what_there_is_is_read_and_what_there_is_not_is_named(desk, call, memories) -> None:
    memory = remembered("Prefers tea.")
    await memories.save(desk.harness.principal, memory, None)

    outcome = await call(MemoryReadTool(memories), {"memory_ids": [memory.id, "mem_x", memory.id]})
    nothing = await call(MemoryReadTool(memories), {"memory_ids": ["mem_x"]})

    assert (outcome.status, nothing.status) == ("ok", "error")
    assert outcome.text.count("Prefers tea.") == 1
    assert "No memories with these ids: mem_x" in outcome.text


async def test_a_failure_is_reported_to_the_model(call, memories) -> None:
    async def refuse(*_: object) -> None:
        raise Unavailable("down")

    memories.load = refuse

    assert (await call(MemoryReadTool(memories), {"memory_ids": ["mem_x"]})).status == "error"
