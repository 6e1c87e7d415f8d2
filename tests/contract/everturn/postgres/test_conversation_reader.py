"""Postgres keeps the contract of ConversationReader."""

import pytest

from everturn.memory.postgres_search import PostgresConversationReader
from everturn_testing.database_roles import Roles
from everturn_testing.memory.conversation_reader_contract import ConversationReaderContract
from everturn_testing.turns.stage import Stage


class TestPostgresConversationReader(ConversationReaderContract):
    @pytest.fixture
    def stage(self, postgres_stage: Stage) -> Stage:
        return postgres_stage

    @pytest.fixture
    def reader(self, roles: Roles) -> PostgresConversationReader:
        return PostgresConversationReader(roles.worker)
