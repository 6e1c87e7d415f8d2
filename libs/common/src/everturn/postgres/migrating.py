"""Brings a database up to date: with an administrator's address first its roles and the database itself, then the
migrations.

The administrator is a superuser, or a role with CREATEROLE and CREATEDB, which is all that managed services give. Only
a superuser can set NOSUPERUSER on a role, give a database to a role of which it is not a member, and revoke functions
of pg_catalog.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import asyncpg
import structlog
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

from everturn.core.errors import EverturnError, Invalid

_log = structlog.get_logger(__name__)

DATABASE: Final = "everturn"
OWNER, INGRESS, WORKER, DISPATCH = "everturn_owner", "everturn_ingress", "everturn_worker", "everturn_dispatch"
POWERS: Final = {
    "rolsuper": "SUPERUSER",
    "rolbypassrls": "BYPASSRLS",
    "rolcreatedb": "CREATEDB",
    "rolcreaterole": "CREATEROLE",
    "rolreplication": "REPLICATION",
}
"""What no role of the platform may have, by the columns of pg_roles."""
LARGE_OBJECTS: Final = tuple(
    f"pg_catalog.{function}"
    for function in ("lo_creat(int4)", "lo_create(oid)", "lo_from_bytea(oid, bytea)", "lo_open(oid, int4)")
)
"""Functions that create and open large objects; the others need an open one, or a superuser."""
CREATE_VECTOR: Final = "CREATE EXTENSION IF NOT EXISTS vector;"
POSTGRES_NEEDED: Final = 16
"""The first version with GRANT ... WITH INHERIT FALSE, SET TRUE."""
VECTOR_NEEDED: Final = (0, 8)
"""The first version of pgvector with hnsw.iterative_scan."""
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")

CALL_LIMIT_S: Final = 60.0
LOCK: Final = 7_310_422_002
"""An arbitrary number shared by all processes that prepare a server, so that two of them don't create the same role."""


@dataclass(frozen=True, slots=True)
class RolePasswords:
    """The passwords of the three roles that log in."""

    owner: str
    ingress: str
    worker: str


def build_role_statements(passwords: RolePasswords, *, superuser: bool = True) -> Sequence[str]:
    """Create missing roles, and set the rights and passwords of all; can run at every start.

    Without `superuser` the roles must have no powers yet, and the role that runs them becomes a member of the owner.
    """
    powers = f" {_without(POWERS.values())}" if superuser else ""
    logins = {OWNER: passwords.owner, INGRESS: passwords.ingress, WORKER: passwords.worker}
    return (
        *(_build_role_statement(role, f"LOGIN{powers}", password=word) for role, word in logins.items()),
        _build_role_statement(DISPATCH, f"NOLOGIN{powers}", password=None),
        # The owner's migrations assign functions to the dispatch role and replace them later, with SET ROLE. The owner
        # must not inherit that role: its policies would show all tenants' rows.
        f"GRANT {DISPATCH} TO {OWNER} WITH ADMIN FALSE, SET TRUE, INHERIT FALSE;",
        *(() if superuser else (f"GRANT {OWNER} TO CURRENT_USER WITH SET TRUE, INHERIT TRUE;",)),
    )


def build_database_statement(name: str) -> str:
    """Create the database. Raises ValueError for a name that would need quotes."""
    return f"CREATE DATABASE {check_name(name)} OWNER {OWNER};"


def build_database_statements(name: str, *, superuser: bool = True) -> Sequence[str]:
    """Inside the database: who can connect, and what it needs; can run at every start."""
    return (
        f"REVOKE ALL ON DATABASE {check_name(name)} FROM PUBLIC;",
        f"GRANT CONNECT ON DATABASE {name} TO {INGRESS}, {WORKER};",
        CREATE_VECTOR,
        f"GRANT USAGE ON SCHEMA public TO {DISPATCH};",
        # Large objects belong to no table, so no policy applies to them.
        *((f"REVOKE EXECUTE ON FUNCTION {', '.join(LARGE_OBJECTS)} FROM PUBLIC;",) if superuser else ()),
    )


def check_name(name: str) -> str:
    """Raises ValueError for a database name that would need quotes."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid database name. Use lowercase letters, digits and underscores.")
    return name


def _build_role_statement(role: str, rights: str, *, password: str | None) -> str:
    """SQL that creates or corrects a role. A new role has no powers."""
    secret = "PASSWORD NULL" if password is None else f"PASSWORD {_quote(password)}"
    return (
        f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$;\n"
        f"ALTER ROLE {role} WITH {rights} {secret};"
    )


def _without(powers: Iterable[str]) -> str:
    return " ".join(f"NO{power}" for power in powers)


def _quote(text: str) -> str:
    """A quoted SQL string, for standard_conforming_strings."""
    return "'" + text.replace("'", "''") + "'"


def find_version_problem(server: int, vector: str | None) -> str:
    """Why a server is too old; empty if it is not. `server` is its server_version_num, and `vector` the version of the
    extension that is used or would be created: None if there is none."""
    if server // 10_000 < POSTGRES_NEEDED:
        return f"This server is Postgres {server // 10_000}. Everturn needs Postgres {POSTGRES_NEEDED} or later."
    found = _VERSION.match(vector or "")
    if found and (int(found[1]), int(found[2])) < VECTOR_NEEDED:
        return (
            f"The extension vector (pgvector) has version {vector} here. Everturn needs "
            f"{'.'.join(map(str, VECTOR_NEEDED))} or later. Update pgvector on the server and, if the database has the "
            "extension already, run ALTER EXTENSION vector UPDATE there."
        )
    return ""


class MigrationFailed(EverturnError):
    """The database could not be brought up to date."""


def migrate_schema(folder: Path) -> None:
    """Run the migrations in `folder`, which read the address from DATABASE_OWNER_URL. Raises MigrationFailed."""
    file = folder / "alembic.ini"
    if not file.is_file():
        raise MigrationFailed(f"There are no migrations in {folder}.")
    try:
        command.upgrade(Config(str(file)), "head")
    except (OSError, SQLAlchemyError, CommandError, asyncpg.PostgresError) as error:
        raise MigrationFailed(str(error)) from error


async def save_server(admin_url: str, owner_url: str, ingress_url: str, worker_url: str) -> None:
    """Create missing roles and the database, and set the roles' passwords to those of their addresses.

    Raises Invalid for inconsistent addresses, MigrationFailed.
    """
    passwords = RolePasswords(
        find_password(owner_url, OWNER), find_password(ingress_url, INGRESS), find_password(worker_url, WORKER)
    )
    name = urlsplit(owner_url).path.removeprefix("/")
    try:
        async with _connected(admin_url) as server:
            await _check_versions(server)
            # Held until the connection ends.
            await server.execute("SELECT pg_advisory_lock($1)", LOCK)
            superuser = await server.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            if not superuser:
                await _remove_powers(server)
            for statement in build_role_statements(passwords, superuser=superuser):
                await server.execute(statement)
            if not await server.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
                await server.execute(build_database_statement(name))
        async with _connected(admin_url, database=name) as database:
            for statement in build_database_statements(name, superuser=superuser):
                await _run_in_database(database, name, statement)
            if not superuser:
                await _revoke_large_objects(database)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise MigrationFailed(str(error)) from error


async def _check_versions(server: Any) -> None:
    """Raises MigrationFailed if the server is too old. The database itself may have an older extension, or none yet."""
    vector = await server.fetchval("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")
    if problem := find_version_problem(int(await server.fetchval("SHOW server_version_num")), vector):
        raise MigrationFailed(problem)


async def _remove_powers(server: Any) -> None:
    """Remove what the platform's roles may not have. Raises MigrationFailed if that needs a superuser."""
    roles = await server.fetch(
        f"SELECT rolname, {', '.join(POWERS)} FROM pg_roles WHERE rolname = ANY($1)",  # noqa: S608 our own columns
        [OWNER, INGRESS, WORKER, DISPATCH],
    )
    for role in roles:
        powers = [power for column, power in POWERS.items() if role[column]]
        statement = f"ALTER ROLE {role['rolname']} WITH {_without(powers)}"
        try:
            if powers:
                await server.execute(statement)
        except asyncpg.InsufficientPrivilegeError as error:
            raise MigrationFailed(
                f"The role {role['rolname']} has {' and '.join(powers)}, which would break the isolation of tenants, "
                f"and this administrator may not remove that. Run {statement} as a superuser."
            ) from error


async def _run_in_database(database: Any, name: str, statement: str) -> None:
    try:
        await database.execute(statement)
    except asyncpg.PostgresError as error:
        if statement != CREATE_VECTOR:
            raise
        raise MigrationFailed(
            f"The database {name} needs the extension vector (pgvector), and this administrator could not create it. "
            "Make it available: on Azure, add vector to azure.extensions; on RDS, connect as a member of "
            "rds_superuser, on Cloud SQL of cloudsqlsuperuser. Or run CREATE EXTENSION vector in the database as a "
            f"superuser. Then migrate again. Postgres said: {error}"
        ) from error


async def _revoke_large_objects(database: Any) -> None:
    """Revoke what this administrator can, and log the rest. Postgres only warns of a REVOKE without effect."""
    left: list[str] = []
    for function in LARGE_OBJECTS:
        is_granted = "SELECT has_function_privilege('public', $1, 'EXECUTE')"
        if await database.fetchval(is_granted, function):
            await database.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
            if await database.fetchval(is_granted, function):
                left.append(function)
    if left:
        _log.warning(
            "Services can create large objects, because only a superuser can revoke that",
            meaning="Large objects belong to no table, so no policy applies to them. Only code that can already send "
            "SQL as a service could pass data between tenants through them.",
            functions=left,
        )


@asynccontextmanager
async def _connected(url: str, **others: str) -> AsyncGenerator[Any]:
    connect = cast("Any", asyncpg).connect
    connection = await connect(url, timeout=CALL_LIMIT_S, command_timeout=CALL_LIMIT_S, **others)
    try:
        yield connection
    finally:
        await connection.close(timeout=CALL_LIMIT_S)


def find_password(url: str, role: str) -> str:
    """The password of an address, which must be of this role. Raises Invalid."""
    parts = urlsplit(url)
    if unquote(parts.username or "") != role or not parts.password:
        raise Invalid(f"Write the address of {role} as postgresql://{role}:password@host:port/name.")
    return unquote(parts.password)


def run_server_preparation(admin_url: str, owner_url: str, ingress_url: str, worker_url: str) -> None:
    """`save_server`, for callers without an event loop."""
    asyncio.run(save_server(admin_url, owner_url, ingress_url, worker_url))
