"""The database roles and databases of the platform, as an operator of a production server would create them."""

from dataclasses import dataclass

from everturn_local.home import Secrets
from everturn_local.servers.postgres import EmbeddedPostgres

DATABASE = "everturn"
OWNER, INGRESS, WORKER, DISPATCH = "everturn_owner", "everturn_ingress", "everturn_worker", "everturn_dispatch"
POWERLESS = "NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION"


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """How each role reaches one database."""

    superuser: str
    owner: str
    ingress: str
    worker: str


def save_roles(postgres: EmbeddedPostgres, passwords: Secrets) -> None:
    """Create the roles that are missing and set rights and passwords of all; may run at every start."""
    logins = {
        OWNER: passwords.everturn_owner,
        INGRESS: passwords.everturn_ingress,
        WORKER: passwords.everturn_worker,
    }
    statements = [build_role_statement(role, login="LOGIN", password=word) for role, word in logins.items()]
    statements.append(build_role_statement(DISPATCH, login="NOLOGIN", password=None))
    # The owner's migrations hand functions to the dispatch role and replace them later, by SET ROLE. It must not
    # inherit the role: it would see all tenants' rows through the policies that are made for dispatch.
    statements.append(f"GRANT {DISPATCH} TO {OWNER} WITH ADMIN FALSE, SET TRUE, INHERIT FALSE;")
    postgres.run_sql("\n".join(statements))


def build_role_statement(role: str, *, login: str, password: str | None) -> str:
    """SQL that creates or corrects a role. `password` is one of our generated ones: hexadecimal."""
    secret = "PASSWORD NULL" if password is None else f"PASSWORD '{password}'"
    return (
        f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$;\n"
        f"ALTER ROLE {role} WITH {login} {POWERLESS} {secret};"
    )


def save_database(postgres: EmbeddedPostgres, name: str = DATABASE) -> None:
    """Create the database and its extension; may run at every start."""
    if not postgres.run_sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):  # noqa: S608 our own name
        postgres.run_sql(f"CREATE DATABASE {name} OWNER {OWNER}")
    postgres.run_sql(
        f"REVOKE ALL ON DATABASE {name} FROM PUBLIC;\n"
        f"GRANT CONNECT ON DATABASE {name} TO {INGRESS}, {WORKER};\n"
        "CREATE EXTENSION IF NOT EXISTS vector;\n"
        f"GRANT USAGE ON SCHEMA public TO {DISPATCH};",
        database=name,
    )


def save_database_copy(postgres: EmbeddedPostgres, name: str, *, template: str) -> None:
    """A new database with the schema and rows of `template`, to which nobody may be connected."""
    postgres.run_sql(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER}")


def remove_database(postgres: EmbeddedPostgres, name: str) -> None:
    """Ends its sessions first."""
    postgres.run_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def build_urls(postgres: EmbeddedPostgres, passwords: Secrets, name: str = DATABASE) -> DatabaseUrls:
    return DatabaseUrls(
        superuser=postgres.superuser_url(name),
        owner=postgres.url(role=OWNER, password=passwords.everturn_owner, database=name),
        ingress=postgres.url(role=INGRESS, password=passwords.everturn_ingress, database=name),
        worker=postgres.url(role=WORKER, password=passwords.everturn_worker, database=name),
    )
