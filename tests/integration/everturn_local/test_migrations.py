"""Migrating the database of a home."""

import os
from pathlib import Path

import asyncpg
import pytest
from helpers.databases import remove_database, run_throwaway_database

from everturn_local.home import Home, Secrets, run_lock, save_home, save_secrets
from everturn_local.migrations import MigrationError, run_database, run_migrate, run_migrations
from everturn_local.servers.databases import DATABASE, build_urls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import LocalSettings, load_environment

VERSIONS = "SELECT count(*) FROM alembic_version"


@pytest.fixture
def settings(tmp_path: Path) -> LocalSettings:
    return LocalSettings(everturn_home=tmp_path / "home")


def test_migrating_works_without_a_running_platform_and_twice(settings: LocalSettings):
    assert run_migrate(settings) == "migrated"
    assert run_migrate(settings) == "migrated"


def test_migrating_uses_the_server_of_a_running_platform(settings: LocalSettings):
    home = save_home(settings.everturn_home)
    secrets = save_secrets(home)
    server = EmbeddedPostgres(home.postgres, password=secrets.postgres, durable=False)
    with run_lock(home):
        server.start()
        save_roles(server, secrets)
        save_database(server)

        done = run_migrate(settings)

    assert "running" in done
    assert server.run_sql(VERSIONS, database=DATABASE) == "1"
    server.stop()


async def count_turns(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval("SELECT count(*) FROM turn")
    finally:
        await connection.close()


async def test_a_throwaway_database_has_the_schema_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with run_throwaway_database(durable=False) as urls:
        turns = await count_turns(urls.worker)

    assert turns == 0
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="Connect call failed"):
        await count_turns(urls.worker)


async def test_a_database_keeps_its_rows_and_its_server_stops_after_a_failure(home: Home) -> None:
    with pytest.raises(ZeroDivisionError), run_database(home, durable=False) as urls:
        connection = await asyncpg.connect(urls.superuser)
        await connection.execute("CREATE TABLE kept (id int)")
        await connection.close()
        _ = 1 / 0

    with run_database(home, durable=False) as urls:
        connection = await asyncpg.connect(urls.superuser)
        assert await connection.fetchval("SELECT count(*) FROM kept") == 0
        await connection.close()


def test_migrations_run_as_the_owner_who_then_owns_the_tables(postgres_server: EmbeddedPostgres, passwords: Secrets):
    save_database(postgres_server, "migrated")

    run_migrations(build_urls(postgres_server, passwords, "migrated").owner, env=load_environment())

    owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
    assert postgres_server.run_sql(owners, database="migrated") == "everturn_owner"
    remove_database(postgres_server, "migrated")


def test_a_migration_that_fails_shows_why(postgres_server: EmbeddedPostgres, passwords: Secrets):
    url = build_urls(postgres_server, passwords, "no_such_database").owner

    with pytest.raises(MigrationError, match="no_such_database"):
        run_migrations(url, env=load_environment())
