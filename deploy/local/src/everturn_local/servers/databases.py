"""The database roles and databases of the platform, as an operator of a production server would create them."""

from dataclasses import dataclass

from everturn.postgres.migrating import (
    DATABASE,
    INGRESS,
    OWNER,
    WORKER,
    RolePasswords,
    build_database_statements,
    build_role_statements,
)
from everturn_local.home import Secrets
from everturn_local.servers.postgres import EmbeddedPostgres


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """The URL with which each role reaches one database."""

    superuser: str
    owner: str
    ingress: str
    worker: str


def save_roles(postgres: EmbeddedPostgres, passwords: Secrets) -> None:
    """Create missing roles and set rights and passwords of all; idempotent, for every start."""
    words = RolePasswords(passwords.everturn_owner, passwords.everturn_ingress, passwords.everturn_worker)
    postgres.run_sql("\n".join(build_role_statements(words)))


def save_database(postgres: EmbeddedPostgres, name: str = DATABASE) -> None:
    """Create the database and its extension; idempotent, for every start."""
    if not postgres.run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):  # noqa: S608 our own name
        postgres.run_sql(f"CREATE DATABASE {name} OWNER {OWNER}")
    postgres.run_sql("\n".join(build_database_statements(name)), database=name)


def build_urls(postgres: EmbeddedPostgres, passwords: Secrets, name: str = DATABASE) -> DatabaseUrls:
    return DatabaseUrls(
        superuser=postgres.superuser_url(name),
        owner=postgres.url(role=OWNER, password=passwords.everturn_owner, database=name),
        ingress=postgres.url(role=INGRESS, password=passwords.everturn_ingress, database=name),
        worker=postgres.url(role=WORKER, password=passwords.everturn_worker, database=name),
    )
