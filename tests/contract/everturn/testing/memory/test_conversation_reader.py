"""The in-memory ConversationReader keeps the contract that Postgres keeps."""

import pytest

from everturn.testing.contracts.conversation_reader import ConversationReaderContract
from everturn.testing.contracts.stage import Stage
from everturn.testing.memory.conversation_reader import MemoryConversationReader
from everturn.testing.memory.platform import MemoryPlatform


class TestMemoryConversationReader(ConversationReaderContract):
    @pytest.fixture
    def stage(self, memory_stage: Stage) -> Stage:
        return memory_stage

    @pytest.fixture
    def reader(self, memory_platform: MemoryPlatform) -> MemoryConversationReader:
        return MemoryConversationReader(memory_platform)
