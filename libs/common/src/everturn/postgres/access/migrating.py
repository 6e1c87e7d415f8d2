"""Brings a database up to date: with a superuser's address its roles and itself first, then the migrations."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

from everturn.errors import EverturnError, Invalid
from everturn.postgres.access.roles import (
    INGRESS,
    OWNER,
    WORKER,
    RolePasswords,
    build_database_statement,
    build_database_statements,
    build_role_statements,
)

CALL_LIMIT_S: Final = 60.0
LOCK: Final = 7_310_422_002
"""An arbitrary number that all who prepare one server agree on, so that two of them don't make the same role."""


class MigrationFailed(EverturnError):
    """The database could not be brought up to date."""


def migrate_schema(folder: Path) -> None:
    """Run the migrations in `folder`, to which DATABASE_OWNER_URL tells the address. Raises MigrationFailed."""
    file = folder / "alembic.ini"
    if not file.is_file():
        raise MigrationFailed(f"There are no migrations in {folder}.")
    try:
        command.upgrade(Config(str(file)), "head")
    except (OSError, SQLAlchemyError, CommandError, asyncpg.PostgresError) as error:
        raise MigrationFailed(str(error)) from error


async def save_server(admin_url: str, owner_url: str, ingress_url: str, worker_url: str) -> None:
    """Make roles and database where they are missing, and give the roles the passwords of their addresses.

    Raises Invalid for addresses that don't belong together, MigrationFailed.
    """
    passwords = RolePasswords(
        find_password(owner_url, OWNER), find_password(ingress_url, INGRESS), find_password(worker_url, WORKER)
    )
    name = urlsplit(owner_url).path.removeprefix("/")
    try:
        async with _connected(admin_url) as server:
            # Held until the connection ends.
            await server.execute("SELECT pg_advisory_lock($1)", LOCK)
            for statement in build_role_statements(passwords):
                await server.execute(statement)
            if not await server.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
                await server.execute(build_database_statement(name))
        async with _connected(admin_url, database=name) as database:
            await database.execute("\n".join(build_database_statements(name)))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise MigrationFailed(str(error)) from error


@asynccontextmanager
async def _connected(url: str, **others: str) -> AsyncGenerator[Any]:
    connect = cast("Any", asyncpg).connect
    connection = await connect(url, timeout=CALL_LIMIT_S, command_timeout=CALL_LIMIT_S, **others)
    try:
        yield connection
    finally:
        await connection.close(timeout=CALL_LIMIT_S)


def find_password(url: str, role: str) -> str:
    """The password of an address, which has to be one of this role. Raises Invalid."""
    parts = urlsplit(url)
    if unquote(parts.username or "") != role or not parts.password:
        raise Invalid(f"Write the address of {role} as postgresql://{role}:password@host:port/name.")
    return unquote(parts.password)


def run_server_preparation(admin_url: str, owner_url: str, ingress_url: str, worker_url: str) -> None:
    """`save_server`, for callers without a loop."""
    asyncio.run(save_server(admin_url, owner_url, ingress_url, worker_url))
