"""An administrator's address is enough to make the database and its roles; a second time nothing changes."""

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.databases import remove_database
from structlog.testing import capture_logs

from everturn.core.errors import DatabaseFault, Invalid
from everturn.postgres import migrating
from everturn.postgres.migrating import (
    MigrationFailed,
    build_database_statements,
    find_password,
    migrate_schema,
    run_server_preparation,
    save_server,
)
from everturn.postgres.pool import open_database
from everturn_local.home import Secrets, save_home
from everturn_local.ports import load_free_port
from everturn_local.servers.databases import DatabaseUrls, build_urls
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_testing.turns.harness import ANN, STRANGERS

_numbers = itertools.count(1)


@pytest.fixture
def urls(postgres_server: EmbeddedPostgres, passwords: Secrets) -> Iterator[DatabaseUrls]:
    """Of a database that is not there."""
    name = f"prepared_{next(_numbers)}"
    yield build_urls(postgres_server, passwords, name)
    remove_database(postgres_server, name)


def prepare(postgres: EmbeddedPostgres, urls: DatabaseUrls) -> None:
    run_server_preparation(postgres.superuser_url(), urls.owner, urls.ingress, urls.worker)


def test_preparing_a_database_twice_keeps_it(
    postgres_server: EmbeddedPostgres, urls: DatabaseUrls, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DATABASE_OWNER_URL", urls.owner)
    name = urls.owner.rpartition("/")[2]

    for _ in range(2):
        prepare(postgres_server, urls)
        migrate_schema(repository / "migrations")

    tables = postgres_server.run_sql(
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tableowner = 'everturn_owner'", database=name
    )
    assert int(tables) > 10
    assert postgres_server.run_sql("SELECT 1 FROM pg_extension WHERE extname = 'vector'", database=name) == "1"
    strangers = f"SELECT has_database_privilege('public', '{name}', 'CONNECT')"
    assert postgres_server.run_sql(strangers) == "f"


def test_a_server_that_is_too_old_is_rejected_before_anything_changes(
    postgres_server: EmbeddedPostgres, urls: DatabaseUrls, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    name = urls.owner.rpartition("/")[2]
    with monkeypatch.context() as patched:
        patched.setattr(migrating, "POSTGRES_NEEDED", 99)
        with pytest.raises(MigrationFailed, match="needs Postgres 99 or later"):
            prepare(postgres_server, urls)
    assert not postgres_server.run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'")

    prepare(postgres_server, urls)
    monkeypatch.setenv("DATABASE_OWNER_URL", urls.owner)
    monkeypatch.setattr(migrating, "VECTOR_NEEDED", (9, 1))
    with pytest.raises(MigrationFailed, match=r"vector \(pgvector\) .* needs 9\.1 or later"):
        migrate_schema(repository / "migrations")
    assert postgres_server.run_sql("SELECT to_regclass('turn') IS NULL", database=name) == "t"


def test_addresses_of_other_roles_change_nothing(postgres_server: EmbeddedPostgres, urls: DatabaseUrls):
    with pytest.raises(Invalid, match="everturn_worker"):
        run_server_preparation(postgres_server.superuser_url(), urls.owner, urls.ingress, urls.ingress)

    name = urls.owner.rpartition("/")[2]
    assert not postgres_server.run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'")


def test_a_password_may_hold_anything_that_an_address_can_quote():
    assert find_password("postgresql://role:a%2Fb%40c@h/x", "role") == "a/b@c"
    for url in ("postgresql://role@h/x", "postgresql://other:p@h/x", "postgresql://h/x"):
        with pytest.raises(Invalid, match="postgresql://role:"):
            find_password(url, "role")


def test_a_missing_server_and_a_wrong_password_are_reported(
    postgres_server: EmbeddedPostgres, urls: DatabaseUrls, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    away = f"postgresql://postgres:x@127.0.0.1:{load_free_port()}/postgres"
    with pytest.raises(MigrationFailed):
        run_server_preparation(away, urls.owner, urls.ingress, urls.worker)
    with pytest.raises(MigrationFailed, match="password"):
        wrong = postgres_server.url(role="postgres", password="wrong", database="postgres")
        run_server_preparation(wrong, urls.owner, urls.ingress, urls.worker)
    monkeypatch.setenv("DATABASE_OWNER_URL", away)
    with pytest.raises(MigrationFailed):
        migrate_schema(repository / "migrations")


def test_a_folder_without_migrations_is_reported(tmp_path: Path):
    with pytest.raises(MigrationFailed, match="no migrations"):
        migrate_schema(tmp_path)


@pytest.fixture
def managed(passwords: Secrets) -> Iterator[tuple[EmbeddedPostgres, DatabaseUrls]]:
    """A server as a managed service gives it: no roles of the platform, and an administrator who is not a superuser."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        server = EmbeddedPostgres(save_home(Path(folder)).postgres, password=passwords.postgres, durable=False)
        server.start()
        server.run_sql("CREATE ROLE master LOGIN CREATEROLE CREATEDB PASSWORD 'm'")
        admin = server.url(role="master", password="m", database="postgres")
        yield server, replace(build_urls(server, passwords), superuser=admin)
        server.stop()


async def test_an_administrator_of_a_managed_service_is_enough(
    managed: tuple[EmbeddedPostgres, DatabaseUrls], repository: Path, monkeypatch: pytest.MonkeyPatch
):
    server, urls = managed
    addresses = (urls.superuser, urls.owner, urls.ingress, urls.worker)
    with pytest.raises(MigrationFailed, match="needs the extension vector") as failed:
        await save_server(*addresses)
    assert 'permission denied to create extension "vector"' in str(failed.value)
    server.run_sql("CREATE EXTENSION vector", database="everturn")
    monkeypatch.setenv("DATABASE_OWNER_URL", urls.owner)

    for _ in range(2):
        with capture_logs() as logs:
            await save_server(*addresses)
        assert ["large objects" in line["event"] for line in logs] == [True]
        await asyncio.to_thread(migrate_schema, repository / "migrations")

    powers = "rolsuper OR rolbypassrls OR rolcreatedb OR rolcreaterole OR rolreplication"
    roles = f"SELECT rolname, {powers}, rolcanlogin FROM pg_roles WHERE rolname LIKE 'everturn%' ORDER BY 1"
    can_log_in = {"dispatch": "f", "ingress": "t", "owner": "t", "worker": "t"}
    assert server.run_sql(roles).splitlines() == [f"everturn_{role}|f|{it}" for role, it in can_log_in.items()]
    assert server.run_sql("SELECT has_database_privilege('public', 'everturn', 'CONNECT')") == "f"
    assert server.run_sql("SELECT pg_has_role('everturn_owner', 'everturn_dispatch', 'USAGE')") == "f"

    insert = "INSERT INTO conversation (id, tenant, project, user_id) VALUES ('conv_z', $1, $2, $3)"
    async with (
        open_database(urls.ingress, pool_size=1, application_name="test-ingress") as ingress,
        open_database(urls.worker, pool_size=1, application_name="test-worker") as worker,
    ):
        async with ingress.transaction(ANN) as transaction:
            await transaction.execute(insert, ANN.tenant, ANN.project, ANN.user_id)
        with pytest.raises(DatabaseFault, match="row-level security"):
            async with ingress.transaction(STRANGERS[0]) as transaction:
                await transaction.execute(insert, ANN.tenant, ANN.project, ANN.user_id)
        for database in (ingress, worker):
            for principal, seen in ((ANN, 1), *((stranger, 0) for stranger in STRANGERS)):
                async with database.transaction(principal) as transaction:
                    assert await transaction.fetchval("SELECT count(*) FROM conversation") == seen

    # A superuser's REVOKE by hand ends the warning.
    server.run_sql(build_database_statements("everturn")[-1], database="everturn")
    with capture_logs() as logs:
        await save_server(*addresses)
    assert logs == []


async def test_powers_that_only_a_superuser_can_remove_are_reported(managed: tuple[EmbeddedPostgres, DatabaseUrls]):
    server, urls = managed
    server.run_sql("""
CREATE ROLE everturn_worker BYPASSRLS CREATEDB;
GRANT everturn_worker TO master WITH ADMIN TRUE, INHERIT FALSE, SET FALSE;
""")
    powers = "SELECT rolbypassrls OR rolcreatedb FROM pg_roles WHERE rolname = 'everturn_worker'"

    with pytest.raises(MigrationFailed, match=r"has BYPASSRLS and CREATEDB.* WITH NOBYPASSRLS NOCREATEDB"):
        await save_server(urls.superuser, urls.owner, urls.ingress, urls.worker)
    server.run_sql("ALTER ROLE everturn_worker NOBYPASSRLS")
    with pytest.raises(MigrationFailed, match="extension vector"):
        await save_server(urls.superuser, urls.owner, urls.ingress, urls.worker)

    assert server.run_sql(powers) == "f"
