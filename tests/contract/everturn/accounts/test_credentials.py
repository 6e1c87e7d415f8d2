"""Credentials in memory and in Postgres keep one contract; no service gets more than it needs."""

from collections.abc import AsyncIterator

import pytest

from everturn.accounts.postgres import PostgresCredentialAdmin, PostgresCredentials
from everturn.core.errors import DatabaseFault
from everturn.postgres.pool import open_database
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.accounts.credentials import MemoryCredentials
from everturn_testing.accounts.credentials_contract import CredentialsContract
from everturn_testing.core import FixedClock
from everturn_testing.database_roles import Roles


class TestPostgresCredentials(CredentialsContract):
    @pytest.fixture
    def credentials(self, roles: Roles) -> PostgresCredentials:
        return PostgresCredentials(roles.ingress)

    @pytest.fixture
    async def admin(self, database: DatabaseUrls) -> AsyncIterator[PostgresCredentialAdmin]:
        async with open_database(database.owner, pool_size=1, application_name="test-operator") as owner:
            yield PostgresCredentialAdmin(owner)


@pytest.mark.parametrize("role", ["ingress", "worker"])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM api_key",
        "INSERT INTO api_key (id) VALUES ('x')",
        "UPDATE api_key SET revoked_at = NULL",
        "DELETE FROM api_key",
        "SELECT FROM credential_cutoff",
        "DELETE FROM credential_cutoff",
        "SET LOCAL ROLE everturn_dispatch",
    ],
)
async def test_no_service_reads_or_makes_credentials(roles: Roles, role: str, statement: str) -> None:
    database = roles.ingress if role == "ingress" else roles.worker

    with pytest.raises(DatabaseFault, match="42501"):
        async with database.connection() as connection:
            await connection.execute(statement)


@pytest.mark.parametrize("question", ["SELECT find_api_key('x')", "SELECT find_credential_cutoff('t', 'p', 'u')"])
async def test_a_worker_has_no_right_to_call_it(roles: Roles, question: str) -> None:
    with pytest.raises(DatabaseFault, match="42501"):
        async with roles.worker.connection() as connection:
            await connection.execute(question)


class TestMemoryCredentials(CredentialsContract):
    @pytest.fixture
    def credentials(self, memory_clock: FixedClock) -> MemoryCredentials:
        return MemoryCredentials(memory_clock)

    @pytest.fixture
    def admin(self, credentials: MemoryCredentials) -> MemoryCredentials:
        return credentials
