"""A superuser's address is enough to make the database and its roles; a second time nothing changes."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.databases import remove_database

from everturn.core.errors import Invalid
from everturn.postgres.migrating import MigrationFailed, find_password, migrate_schema, run_server_preparation
from everturn_local.home import Secrets
from everturn_local.ports import load_free_port
from everturn_local.servers.databases import DatabaseUrls, build_urls
from everturn_local.servers.postgres import EmbeddedPostgres

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
