"""Conversation readers in memory and in Postgres keep one contract."""

import pytest

from everturn.turns.postgres_reading import PostgresConversationReader
from everturn_testing.database_roles import Roles
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.conversation_reader_contract import ConversationReaderContract
from everturn_testing.turns.harness import Harness


class TestPostgresConversationReader(ConversationReaderContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness

    @pytest.fixture
    def reader(self, roles: Roles) -> PostgresConversationReader:
        return PostgresConversationReader(roles.worker)


class TestMemoryConversationReader(ConversationReaderContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness

    @pytest.fixture
    def reader(self, memory_platform: MemoryPlatform) -> MemoryConversationReader:
        return MemoryConversationReader(memory_platform)
