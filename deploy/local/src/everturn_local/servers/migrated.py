"""The database of a home, with the newest schema, while its server runs."""

from collections.abc import Generator
from contextlib import contextmanager

from everturn_local.home import Home, save_secrets
from everturn_local.migrations import run_migrations
from everturn_local.servers.databases import DatabaseUrls, build_urls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import load_environment


@contextmanager
def run_database(home: Home, *, durable: bool = True) -> Generator[DatabaseUrls]:
    """Run the database of a home that is not in use. Raises ServerStartError, SqlError, MigrationError."""
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
