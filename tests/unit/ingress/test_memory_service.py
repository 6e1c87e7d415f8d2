"""The memory service over memories in memory."""

import pytest

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.paging import BadCursor, build_cursor
from everturn_testing.memory.user_memories import MemoryUserMemories
from everturn_testing.memory.user_memories_contract import remembered
from ingress.memory import MemoryService

ANN = Principal("acme", "support", "ann")


@pytest.fixture
def memories() -> MemoryUserMemories:
    return MemoryUserMemories()


async def test_the_last_page_has_no_cursor(memories: MemoryUserMemories) -> None:
    service = MemoryService(memories)
    for age in range(3):
        await memories.save(ANN, remembered(f"fact {age}", age_days=age), None)

    first = await service.load_page(ANN, limit=2, cursor=None)
    last = await service.load_page(ANN, limit=2, cursor=first.next_cursor)

    assert [item.text for item in (*first.items, *last.items)] == ["fact 0", "fact 1", "fact 2"]
    assert first.next_cursor is not None and last.next_cursor is None


async def test_a_cursor_of_another_list_is_refused(memories: MemoryUserMemories) -> None:
    for cursor in (build_cursor("search", "x", "y"), build_cursor("memory", "2026-01-01T00:00:00+00:00", "conv_1")):
        with pytest.raises(BadCursor):
            await MemoryService(memories).load_page(ANN, limit=2, cursor=cursor)


async def test_what_is_no_id_is_absent(memories: MemoryUserMemories) -> None:
    with pytest.raises(NotFound):
        await MemoryService(memories).forget(ANN, "*")
