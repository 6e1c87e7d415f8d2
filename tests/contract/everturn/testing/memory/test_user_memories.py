"""The in-memory user memory keeps the contracts that Postgres keeps."""

import itertools

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import TurnId
from everturn_testing.memory.user_memories import MemoryUserMemories
from everturn_testing.memory.user_memories_contract import BeginTurn, MemoryBookContract, UserMemoriesContract


@pytest.fixture
def memories() -> MemoryUserMemories:
    return MemoryUserMemories()


@pytest.fixture
def book(memories: MemoryUserMemories) -> MemoryUserMemories:
    return memories


@pytest.fixture
def owner() -> Principal:
    return Principal("acme", "support", "ann")


@pytest.fixture
def begin_turn(memories: MemoryUserMemories) -> BeginTurn:
    numbers = itertools.count(1)

    async def begin() -> TurnId:
        turn_id = TurnId(f"turn_{next(numbers)}")
        memories.begin(turn_id)
        return turn_id

    return begin


class TestMemoryUserMemories(UserMemoriesContract):
    pass


class TestMemoryMemoryBook(MemoryBookContract):
    pass
