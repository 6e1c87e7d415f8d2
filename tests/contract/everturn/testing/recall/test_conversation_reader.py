"""The in-memory ConversationReader keeps the contract that Postgres keeps."""

import pytest

from everturn_testing.memory.conversation_reader import MemoryConversationReader
from everturn_testing.memory.conversation_reader_contract import ConversationReaderContract
from everturn_testing.turns.platform import MemoryPlatform
from everturn_testing.turns.stage import Stage


class TestMemoryConversationReader(ConversationReaderContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

    @pytest.fixture
    def reader(self, memory_platform: MemoryPlatform) -> MemoryConversationReader:
        return MemoryConversationReader(memory_platform)
