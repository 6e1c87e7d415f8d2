import asyncio

from chat_proc.memory.hotset import HOTSET_ROWS, Hotset
from everturn.errors import Unavailable
from everturn.model.identity import Principal
from everturn.testing.contracts.user_memories import remembered
from everturn.testing.memory.user_memories import MemoryUserMemories

ANN = Principal("acme", "support", "ann")


async def test_a_turn_begins_with_the_hottest_memories() -> None:
    memories = MemoryUserMemories()
    for n in range(12):
        await memories.save(ANN, remembered(f"fact {n}", pinned=n == 7, age_days=n), None)

    found = await Hotset(memories).load_hotset(ANN)

    assert [memory.text for memory in found] == ["fact 7", *[f"fact {n}" for n in range(7)]]  # type: ignore[union-attr]
    assert len(found) == HOTSET_ROWS


async def test_a_failure_or_a_wait_ends_no_turn() -> None:
    class Down(MemoryUserMemories):
        async def load_hotset(self, principal, limit):
            raise Unavailable("no database")

    class Slow(MemoryUserMemories):
        async def load_hotset(self, principal, limit):
            await asyncio.Event().wait()

    assert await Hotset(Down()).load_hotset(ANN) == "memories can't be read now"
    assert await Hotset(Slow(), timeout_s=0.01).load_hotset(ANN) == "memories can't be read now"
