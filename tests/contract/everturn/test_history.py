"""The changes of turns in memory and in Postgres keep one contract."""

import pytest

from everturn.history.postgres import PostgresWorkspaceChanges
from everturn_testing.database_roles import Roles
from everturn_testing.history import MemoryWorkspaceChanges
from everturn_testing.history_contract import WorkspaceChangesContract
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness


class TestPostgresWorkspaceChanges(WorkspaceChangesContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness

    @pytest.fixture
    def changes(self, roles: Roles) -> PostgresWorkspaceChanges:
        return PostgresWorkspaceChanges(roles.worker)


class TestMemoryWorkspaceChanges(WorkspaceChangesContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness

    @pytest.fixture
    def changes(self, memory_platform: MemoryPlatform) -> MemoryWorkspaceChanges:
        return MemoryWorkspaceChanges(memory_platform)
