"""Migrates the database of a home as its owner, as an operator does: with alembic."""

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from everturn.core.errors import EverturnError
from everturn_local.home import Home, HomeInUseError, load_secrets, run_lock, save_home, save_secrets
from everturn_local.servers.databases import DatabaseUrls, build_urls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import REPOSITORY, LocalSettings, load_environment

MIGRATION_LIMIT_S = 300.0
ERROR_TAIL_CHARS = 2_000


class MigrationError(EverturnError):
    """The database schema could not be brought up to date."""


def run_migrate(settings: LocalSettings) -> str:
    """`make migrate`: migrate and return a description. Starts Postgres for the migration if no platform runs it."""
    home = save_home(settings.everturn_home)
    try:
        with run_lock(home), run_database(home):
            return "migrated"
    except HomeInUseError:
        _run_on_running_server(home)
        return "migrated the running platform's database"


def _run_on_running_server(home: Home) -> None:
    secrets = load_secrets(home)
    postgres = EmbeddedPostgres(home.postgres, password=secrets.postgres)
    postgres.attach()
    run_migrations(build_urls(postgres, secrets).owner, env=load_environment())


@contextmanager
def run_database(home: Home, *, durable: bool = True) -> Generator[DatabaseUrls]:
    """Run the database of a home that is not in use, with the newest schema.

    Raises ServerStartError, SqlError, MigrationError.
    """
    passwords = save_secrets(home)
    server = EmbeddedPostgres(
        home.postgres, password=passwords.postgres, log=home.logs / "postgres.log", durable=durable
    )
    server.start()
    try:
        save_roles(server, passwords)
        save_database(server)
        urls = build_urls(server, passwords)
        run_migrations(urls.owner, env=load_environment())
        yield urls
    finally:
        server.stop()


def run_migrations(owner_url: str, *, env: Mapping[str, str]) -> None:
    """Update the schema to the newest version. Raises MigrationError with alembic's output."""
    argv = [sys.executable, "-m", "alembic", "-c", str(REPOSITORY / "migrations" / "alembic.ini"), "upgrade", "head"]
    done = subprocess.run(
        argv,
        env={**env, "DATABASE_OWNER_URL": owner_url},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=MIGRATION_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MigrationError(f"alembic says:\n{(done.stdout + done.stderr).strip()[-ERROR_TAIL_CHARS:]}")
