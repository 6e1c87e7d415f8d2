"""The in-memory user memory keeps the contract that Postgres keeps."""

import pytest

from everturn.model.identity import Principal
from everturn.testing.contracts.user_memories import UserMemoriesContract
from everturn.testing.memory.user_memories import MemoryUserMemories


class TestMemoryUserMemories(UserMemoriesContract):
    @pytest.fixture
    def memories(self) -> MemoryUserMemories:
        return MemoryUserMemories()

    @pytest.fixture
    def owner(self) -> Principal:
        return Principal("acme", "support", "ann")
