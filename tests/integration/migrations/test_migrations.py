"""The migrations make the schema, once, whoever runs them at the same time, and say plainly what they lack."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn_local.home import Secrets
from everturn_local.servers.databases import DatabaseUrls, build_urls, remove_database, save_database
from everturn_local.servers.postgres import EmbeddedPostgres


def start_migration(repository: Path, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "alembic", "-c", str(repository / "migrations" / "alembic.ini"), "upgrade", "head"],
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
