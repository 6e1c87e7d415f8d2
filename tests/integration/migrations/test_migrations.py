"""The migrations make the schema, once, whoever runs them at the same time, and say plainly what they lack."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from everturn_local.home import Secrets
from everturn_local.servers.databases import DatabaseUrls, build_urls, remove_database, save_database
from everturn_local.servers.postgres import EmbeddedPostgres

BUILD = (
    "CREATE INDEX CONCURRENTLY turn_running ON turn (tenant, user_id, lane, conversation_id) WHERE status = 'running'"
)


def start_migration(repository: Path, url: str, target: str = "head") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "alembic", "-c", str(repository / "migrations" / "alembic.ini"), "upgrade", target],
        env={**os.environ, "DATABASE_OWNER_URL": url},
        cwd=repository,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture
def empty(postgres_server: EmbeddedPostgres, passwords: Secrets) -> Iterator[DatabaseUrls]:
    save_database(postgres_server, "unmigrated")
    yield build_urls(postgres_server, passwords, "unmigrated")
    remove_database(postgres_server, "unmigrated")


def test_two_migrators_at_once_and_a_third_later_make_one_schema(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, repository: Path
) -> None:
    together = [start_migration(repository, empty.owner) for _ in range(2)]
    said = [migrator.communicate(timeout=60)[0] for migrator in together]
    again = start_migration(repository, empty.owner)
    said.append(again.communicate(timeout=60)[0])

    assert [migrator.returncode for migrator in (*together, again)] == [0, 0, 0], said
    assert postgres_server.run_sql("SELECT count(*) FROM alembic_version", database="unmigrated") == "1"


def test_a_migrator_that_cannot_become_the_dispatch_role_says_what_to_do(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, repository: Path
) -> None:
    postgres_server.run_sql("CREATE ROLE nobody LOGIN PASSWORD 'x'; GRANT nobody TO postgres")
    postgres_server.run_sql("GRANT CREATE ON SCHEMA public TO nobody", database="unmigrated")
    postgres_server.run_sql("GRANT CONNECT ON DATABASE unmigrated TO nobody")
    url = postgres_server.url(role="nobody", password="x", database="unmigrated")

    migrator = start_migration(repository, url)
    said, _ = migrator.communicate(timeout=60)

    assert migrator.returncode != 0
    assert "nobody can't become everturn_dispatch" in said
    assert "GRANT everturn_dispatch TO nobody" in said
    postgres_server.run_sql("DROP OWNED BY nobody", database="unmigrated")
    postgres_server.run_sql("DROP OWNED BY nobody; DROP ROLE nobody")


def test_without_an_address_nothing_is_tried(repository: Path) -> None:
    migrator = start_migration(repository, "")
    said, _ = migrator.communicate(timeout=60)

    assert migrator.returncode != 0
    assert "DATABASE_OWNER_URL is not set" in said


@asynccontextmanager
async def connected(server: EmbeddedPostgres) -> AsyncGenerator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.superuser_url("unmigrated"))
    try:
        await connection.execute("SET lock_timeout = '2s'")
        yield connection
    finally:
        await connection.close()


async def migrate(repository: Path, url: str, target: str) -> None:
    migrator = start_migration(repository, url, target)
    said, _ = await asyncio.to_thread(migrator.communicate, timeout=120)
    assert migrator.returncode == 0, said


async def say(connection: asyncpg.Connection, name: str) -> None:
    """A conversation with a queued turn."""
    await connection.execute(
        "INSERT INTO conversation (id, tenant, project, user_id) VALUES ($1, 'acme', 'main', 'ann')", name
    )
    await connection.execute(
        "INSERT INTO turn (id, conversation_id, tenant, project, user_id, ordinal, lane, roles, request)"
        " VALUES ($1, $1, 'acme', 'main', 'ann', 1, 'registered', '{}', '{}')",
        name,
    )


async def is_valid(connection: asyncpg.Connection) -> bool | None:
    return await connection.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('turn_running')")


async def test_writers_go_on_while_an_index_is_built(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, repository: Path
) -> None:
    await migrate(repository, empty.owner, "0012")
    async with connected(postgres_server) as blocker, connected(postgres_server) as writer:
        await say(writer, "one")
        async with blocker.transaction():
            # The build waits for the end of this transaction: only then it may be sure of what it reads.
            await blocker.execute("UPDATE turn SET rings = 1 WHERE id = 'one'")
            migrating = asyncio.create_task(migrate(repository, empty.owner, "head"))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'unmigrated' AND wait_event_type = 'Lock'"
            async with asyncio.timeout(120):
                while not await writer.fetchval(waiting):  # noqa: ASYNC110 - the server reports no event for it
                    await asyncio.sleep(0.05)

            await say(writer, "two")
            await writer.execute("UPDATE turn SET status = 'running' WHERE id = 'two'")
            assert not migrating.done()
        await migrating

        assert await is_valid(writer)


async def test_an_index_whose_build_was_broken_off_is_built_again(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, repository: Path
) -> None:
    await migrate(repository, empty.owner, "0012")
    async with connected(postgres_server) as blocker, connected(postgres_server) as builder:
        await say(builder, "one")
        async with blocker.transaction():
            await blocker.execute("UPDATE turn SET rings = 1 WHERE id = 'one'")
            await builder.execute("SET lock_timeout = '100ms'")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await builder.execute(BUILD)
        assert await is_valid(builder) is False

        await migrate(repository, empty.owner, "head")

        assert await is_valid(builder)


def test_later_migrations_build_indexes_beside_writers(repository: Path) -> None:
    """An index of a table that the same file creates stops nobody."""
    later = [file for file in (repository / "migrations" / "sql").glob("*/**/*.sql") if file.parts[-2] != "functions"]
    later = [file for file in later if file.relative_to(repository / "migrations" / "sql").parts[0] > "0012"]
    later += [file for file in (repository / "migrations" / "versions").glob("*.py") if file.name > "0012"]

    for file in later:
        source = file.read_text()
        created = set(re.findall(r"CREATE TABLE (\w+)", source))
        indexed = set(re.findall(r"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?\w+ ON (\w+)", source))
        assert indexed <= created, f"{file.name}: build the index with `build_index`."
