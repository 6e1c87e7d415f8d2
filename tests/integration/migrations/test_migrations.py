"""The migrations create the schema once, also if two run at the same time, and errors say what is missing.

Tests of later migrations copy the folder and add one.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from helpers.databases import remove_database

from everturn_local.home import Secrets
from everturn_local.servers.databases import DatabaseUrls, build_urls, save_database
from everturn_local.servers.postgres import EmbeddedPostgres

VERSIONS = Path(__file__).resolve().parents[3] / "migrations" / "versions"
NEWEST = max(file.name[:4] for file in VERSIONS.glob("[0-9]*.py"))
LATER = f"{int(NEWEST) + 1:04}"
INDEX = "turn_by_rings"
BUILD_INDEX = f'''
from indexes import build_index

revision = "{LATER}"
down_revision = "{NEWEST}"


def upgrade() -> None:
    build_index("{INDEX}", "ON turn (tenant, rings)")
'''
CHANGE_FUNCTION = f"""
from alembic import op
from scripts import save_functions

revision = "{LATER}"
down_revision = "{NEWEST}"


def upgrade() -> None:
    op.execute("ALTER TABLE credential_cutoff ADD COLUMN cancelled boolean NOT NULL DEFAULT false")
    save_functions(["find_credential_cutoff"])
"""
FUNCTIONS = (
    "SELECT p.proname, pg_get_functiondef(p.oid), pg_get_userbyid(p.proowner), p.proacl::text FROM pg_proc p"
    " WHERE p.pronamespace = 'public'::regnamespace"
    " AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') ORDER BY p.oid"
)


def start_migration(folder: Path, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "alembic", "-c", str(folder / "alembic.ini"), "upgrade", "head"],
        env={**os.environ, "DATABASE_OWNER_URL": url},
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture
def migrations(repository: Path) -> Path:
    return repository / "migrations"


@pytest.fixture
def later_migrations(migrations: Path, tmp_path: Path) -> Path:
    """A copy of the migrations, to which a test adds another."""
    return Path(shutil.copytree(migrations, tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def empty(postgres_server: EmbeddedPostgres, passwords: Secrets) -> Iterator[DatabaseUrls]:
    save_database(postgres_server, "unmigrated")
    yield build_urls(postgres_server, passwords, "unmigrated")
    remove_database(postgres_server, "unmigrated")


def test_two_migrators_at_once_and_a_third_later_make_one_schema(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, migrations: Path
) -> None:
    together = [start_migration(migrations, empty.owner) for _ in range(2)]
    said = [migrator.communicate(timeout=60)[0] for migrator in together]
    again = start_migration(migrations, empty.owner)
    said.append(again.communicate(timeout=60)[0])

    assert [migrator.returncode for migrator in (*together, again)] == [0, 0, 0], said
    assert postgres_server.run_sql("SELECT count(*) FROM alembic_version", database="unmigrated") == "1"


def test_a_migrator_that_cannot_become_the_dispatch_role_says_what_to_do(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, migrations: Path
) -> None:
    postgres_server.run_sql("CREATE ROLE nobody LOGIN PASSWORD 'x'; GRANT nobody TO postgres")
    postgres_server.run_sql("GRANT CREATE ON SCHEMA public TO nobody", database="unmigrated")
    postgres_server.run_sql("GRANT CONNECT ON DATABASE unmigrated TO nobody")
    url = postgres_server.url(role="nobody", password="x", database="unmigrated")

    migrator = start_migration(migrations, url)
    said, _ = migrator.communicate(timeout=60)

    assert migrator.returncode != 0
    assert "nobody can't become everturn_dispatch" in said
    assert "GRANT everturn_dispatch TO nobody" in said
    postgres_server.run_sql("DROP OWNED BY nobody", database="unmigrated")
    postgres_server.run_sql("DROP OWNED BY nobody; DROP ROLE nobody")


def test_without_an_address_nothing_is_tried(migrations: Path) -> None:
    migrator = start_migration(migrations, "")
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


async def migrate(folder: Path, url: str) -> None:
    migrator = start_migration(folder, url)
    said, _ = await asyncio.to_thread(migrator.communicate, timeout=120)
    assert migrator.returncode == 0, said


async def refuse(folder: Path, url: str) -> str:
    """What a migration says that must fail."""
    migrator = start_migration(folder, url)
    said, _ = await asyncio.to_thread(migrator.communicate, timeout=120)
    assert migrator.returncode != 0, said
    return said


async def save_turn(connection: asyncpg.Connection, name: str) -> None:
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
    return await connection.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", INDEX)


async def test_writers_go_on_while_an_index_is_built(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, later_migrations: Path
) -> None:
    await migrate(later_migrations, empty.owner)
    (later_migrations / "versions" / f"{LATER}_index.py").write_text(BUILD_INDEX)
    async with connected(postgres_server) as blocker, connected(postgres_server) as writer:
        await save_turn(writer, "one")
        async with blocker.transaction():
            # The build waits for the end of this transaction: only then it may be sure of what it reads.
            await blocker.execute("UPDATE turn SET rings = 1 WHERE id = 'one'")
            migrating = asyncio.create_task(migrate(later_migrations, empty.owner))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'unmigrated' AND wait_event_type = 'Lock'"
            async with asyncio.timeout(120):
                while not await writer.fetchval(waiting):  # noqa: ASYNC110 - the server reports no event for it
                    await asyncio.sleep(0.05)

            await save_turn(writer, "two")
            await writer.execute("UPDATE turn SET status = 'running' WHERE id = 'two'")
            assert not migrating.done()
        await migrating

        assert await is_valid(writer)


async def test_an_index_whose_build_was_interrupted_is_built_again(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, later_migrations: Path
) -> None:
    await migrate(later_migrations, empty.owner)
    (later_migrations / "versions" / f"{LATER}_index.py").write_text(BUILD_INDEX)
    async with connected(postgres_server) as blocker, connected(postgres_server) as builder:
        await save_turn(builder, "one")
        async with blocker.transaction():
            await blocker.execute("UPDATE turn SET rings = 1 WHERE id = 'one'")
            await builder.execute("SET lock_timeout = '100ms'")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await builder.execute(f"CREATE INDEX CONCURRENTLY {INDEX} ON turn (tenant, rings)")
        assert await is_valid(builder) is False

        await migrate(later_migrations, empty.owner)

        assert await is_valid(builder)


@pytest.mark.parametrize("migrated_before", [True, False], ids=["an old database", "a new database"])
async def test_a_later_migration_replaces_one_function_of_a_file(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, later_migrations: Path, *, migrated_before: bool
) -> None:
    if migrated_before:
        await migrate(later_migrations, empty.owner)
    accounts = later_migrations / "sql" / "functions" / "accounts.sql"
    changed = accounts.read_text().replace("WHERE user_id", "WHERE NOT cancelled AND user_id")
    accounts.write_text(changed.replace("id = p_id AND revoked_at", "p_id = id AND revoked_at"))
    (later_migrations / "versions" / f"{LATER}_cancelled.py").write_text(CHANGE_FUNCTION)

    await migrate(later_migrations, empty.owner)

    async with connected(postgres_server) as connection:
        functions = {name: rest for name, *rest in await connection.fetch(FUNCTIONS)}
        create = "SELECT has_schema_privilege('everturn_dispatch', 'public', 'CREATE')"
        assert await connection.fetchval("SELECT find_credential_cutoff('acme', 'main', 'ann')") is None
        assert not await connection.fetchval(create)
    definition, owner, rights = functions["find_credential_cutoff"]
    assert "NOT cancelled" in definition
    assert ("p_id = id" in functions["find_api_key"][0]) is not migrated_before
    assert owner == "everturn_dispatch"
    assert rights == "{everturn_dispatch=X/everturn_dispatch,everturn_ingress=X/everturn_dispatch}"


async def test_the_files_define_exactly_the_functions_of_the_schema(database: DatabaseUrls, migrations: Path) -> None:
    """With bodies checked against the schema, which migrations don't do."""
    sources = [file.read_text() for file in (migrations / "sql" / "functions").iterdir()]
    names = [
        name for source in sources for name in re.findall(r"^CREATE OR REPLACE FUNCTION (\w+)", source, re.MULTILINE)
    ]
    connection = await asyncpg.connect(database.superuser)
    try:
        before = await connection.fetch(FUNCTIONS)
        async with connection.transaction():
            for source in sources:
                await connection.execute(source)
            after = await connection.fetch(FUNCTIONS)
    finally:
        await connection.close()

    assert sorted(names) == sorted(name for name, *_ in before)
    assert after == before


async def test_a_database_of_a_newer_version_is_refused(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, migrations: Path, later_migrations: Path
) -> None:
    (later_migrations / "versions" / f"{LATER}_index.py").write_text(BUILD_INDEX)
    await migrate(later_migrations, empty.owner)

    said = await refuse(migrations, empty.owner)

    assert f"is at version {LATER}, which these migrations don't know; their newest is {NEWEST}" in said
    assert "Traceback" not in said


async def test_a_database_from_before_the_baseline_is_refused(
    empty: DatabaseUrls, postgres_server: EmbeddedPostgres, migrations: Path
) -> None:
    await migrate(migrations, empty.owner)
    postgres_server.run_sql("UPDATE alembic_version SET version_num = '0009'", database="unmigrated")

    said = await refuse(migrations, empty.owner)

    assert "is at version 0009, but upgrades start at version 0015" in said
    assert "Traceback" not in said
    assert postgres_server.run_sql("SELECT version_num FROM alembic_version", database="unmigrated") == "0009"


def find_blocking_indexes(source: str) -> set[str]:
    """Tables whose writers the statement CREATE INDEX blocks. A table that the same file creates has no writers yet."""
    created = re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", source)
    indexed = re.findall(r"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?\w+ ON (\w+)", source)
    return set(indexed) - set(created)


def test_later_migrations_build_indexes_without_blocking_writers(migrations: Path) -> None:
    assert find_blocking_indexes("CREATE TABLE a (); CREATE UNIQUE INDEX b ON a (c); CREATE INDEX d ON e (f)") == {"e"}

    for file in (*migrations.glob("sql/**/*.sql"), *migrations.glob("versions/*.py")):
        assert not find_blocking_indexes(file.read_text()), f"{file.name}: build the index with `build_index`."
