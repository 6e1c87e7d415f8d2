"""Running the repository's migrations."""

import pytest
from helpers.databases import remove_database

from everturn_local.home import Secrets
from everturn_local.migrations import MigrationError, run_migrations
from everturn_local.servers.databases import build_urls, save_database
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import load_environment


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
