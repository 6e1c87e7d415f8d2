"""Databases that tests and benchmarks create and remove."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from everturn.postgres.migrating import OWNER
from everturn_local.home import save_home
from everturn_local.migrations import run_database
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.servers.postgres import EmbeddedPostgres


def save_database_copy(postgres: EmbeddedPostgres, name: str, *, template: str) -> None:
    """Create a database with the schema and rows of `template`, which must have no connections."""
    postgres.run_sql(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER}")


def remove_database(postgres: EmbeddedPostgres, name: str) -> None:
    """Remove a database; ends its sessions first."""
    postgres.run_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def without_standby(postgres: EmbeddedPostgres) -> Generator[None]:
    """Commits wait for a synchronous standby that does not exist. The server reads its settings a little later, so the
    first ones may not. When its caller gives up, the server keeps what it has committed."""
    postgres.run_sql("ALTER SYSTEM SET synchronous_standby_names = 'absent';\nSELECT pg_reload_conf();")
    try:
        yield
    finally:
        postgres.run_sql("ALTER SYSTEM RESET synchronous_standby_names;\nSELECT pg_reload_conf();")


@contextmanager
def run_throwaway_database(*, durable: bool = True) -> Generator[DatabaseUrls]:
    """An empty database, removed at the end with its server and its folder. See EmbeddedPostgres for `durable`."""
    with tempfile.TemporaryDirectory() as folder, run_database(save_home(Path(folder)), durable=durable) as urls:
        yield urls
