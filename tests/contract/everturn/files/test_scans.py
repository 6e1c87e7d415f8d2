"""Scans in memory and in Postgres keep one contract; no service may revoke."""

from collections.abc import AsyncIterator

import pytest

from everturn.core.errors import DatabaseFault
from everturn.files.postgres import PostgresArtifacts, PostgresScans
from everturn.postgres.pool import open_database
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.database_roles import Roles
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.scans import MemoryScans
from everturn_testing.files.scans_contract import ScansContract
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.harness import Harness


class TestPostgresScans(ScansContract):
    @pytest.fixture
    def harness(self, postgres_harness: Harness) -> Harness:
        return postgres_harness

    @pytest.fixture
    async def scans(self, database: DatabaseUrls) -> AsyncIterator[PostgresScans]:
        async with open_database(database.owner, pool_size=1, application_name="test-operator") as owner:
            yield PostgresScans(owner)

    @pytest.fixture
    def artifacts(self, roles: Roles) -> PostgresArtifacts:
        return PostgresArtifacts(roles.worker)


@pytest.mark.parametrize("role", ["ingress", "worker"])
@pytest.mark.parametrize("change", ["revoked_at = NULL", "verdict = 'clean'"])
async def test_no_service_may_revoke_or_change_a_verdict(roles: Roles, role: str, change: str) -> None:
    database = roles.ingress if role == "ingress" else roles.worker

    with pytest.raises(DatabaseFault, match="42501"):
        async with database.connection() as connection:
            await connection.execute(f"UPDATE artifact SET {change}")


class TestMemoryScans(ScansContract):
    @pytest.fixture
    def harness(self, memory_harness: Harness) -> Harness:
        return memory_harness

    @pytest.fixture
    def scans(self, memory_platform: MemoryPlatform) -> MemoryScans:
        return MemoryScans(memory_platform)

    @pytest.fixture
    def artifacts(self, memory_platform: MemoryPlatform) -> MemoryArtifacts:
        return MemoryArtifacts(memory_platform)
