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
def run_throwaway_database(*, durable: bool = True) -> Generator[DatabaseUrls]:
    """An empty database, removed at the end with its server and its folder. See EmbeddedPostgres for `durable`."""
    with tempfile.TemporaryDirectory() as folder, run_database(save_home(Path(folder)), durable=durable) as urls:
        yield urls
