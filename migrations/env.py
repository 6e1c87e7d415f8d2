"""Runs the migrations as the owner of the tables, one migrator at a time.

Each migration is one transaction, except for the indexes that it builds without blocking writers (`indexes.py`)."""

import asyncio
import os
import time

from alembic import context
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

from everturn.postgres.migrating import find_version_problem

MIGRATOR_LOCK = 7_310_422_001
"""An arbitrary number that all migrators of one database agree on."""
TURN_POLL_S = 0.2
TURN_WAIT_S = 3_600.0
"""How long to wait for another migrator: an index of a large table takes its time."""
MAX_RETENTION_DAYS = 36_500
LOCK_TIMEOUT = "10s"
"""A migration that waits longer for a table would stop the queries that wait behind it."""


async def run_online() -> None:
    engine = create_async_engine(_url(), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_migrate)
    finally:
        await engine.dispose()


def _url() -> str:
    """`postgresql://` as the services have it, with the role that owns the tables."""
    url = os.environ.get("DATABASE_OWNER_URL", "")
    if not url:
        raise SystemExit(
            "DATABASE_OWNER_URL is not set. Example: postgresql://everturn_owner:password@localhost/everturn"
        )
    return url.replace("postgresql://", "postgresql+asyncpg://", 1)


def _migrate(connection: Connection) -> None:
    _wait_for_turn(connection)
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    _check_server(connection)
    _check_version(connection)
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
    _save_retention(connection)


def _check_server(connection: Connection) -> None:
    """Raises CommandError for a Postgres or a pgvector that is too old."""
    vector = "SELECT coalesce(installed_version, default_version) FROM pg_available_extensions WHERE name = 'vector'"
    server = connection.scalar(text("SHOW server_version_num"))
    if problem := find_version_problem(int(server), connection.scalar(text(vector))):
        raise CommandError(problem)


def _check_version(connection: Connection) -> None:
    """Raises CommandError for a database whose version these migrations don't know."""
    known = [script.revision for script in context.script.walk_revisions()]
    newest, oldest = known[0], known[-1]
    for version in MigrationContext.configure(connection).get_current_heads():
        if version in known:
            continue
        if version.isdigit() and version < oldest:
            raise CommandError(
                f"This database is at version {version}, but upgrades start at version {oldest}. Migrate it to {oldest}"
                f" with an older version of Everturn, which still has the migrations in between, or start with an empty"
                " database. In a checkout, `make clean` deletes the local data."
            )
        raise CommandError(
            f"This database is at version {version}, which these migrations don't know; their newest is {newest}."
            " A newer version of Everturn has migrated it: run that version or a later one."
        )


def _wait_for_turn(connection: Connection) -> None:
    """Return once no other migrator is running; the lock is held until the connection ends.

    Polls, because a query that waits holds a snapshot: the other migrator's CREATE INDEX CONCURRENTLY would wait for
    its end, and both would be stuck.
    """
    deadline_s = time.monotonic() + TURN_WAIT_S
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": MIGRATOR_LOCK}):
        connection.rollback()
        if time.monotonic() > deadline_s:
            raise SystemExit(
                f"Another migrator has been running for {TURN_WAIT_S:g} s. Try again when it has finished."
            )
        await_only(asyncio.sleep(TURN_POLL_S))


def _save_retention(connection: Connection) -> None:
    """Save RETENTION_DAYS, if it is set, in the database: workers can expire nothing younger."""
    days = os.environ.get("RETENTION_DAYS", "")
    if not days:
        return
    if not (days.isascii() and days.isdigit() and int(days) <= MAX_RETENTION_DAYS):
        raise SystemExit(f"RETENTION_DAYS must be a number of days from 0 to {MAX_RETENTION_DAYS}.")
    if connection.scalar(text("SELECT to_regclass('retention_limit')")) is not None:
        connection.execute(text("UPDATE retention_limit SET min_days = NULLIF(:days, 0)"), {"days": int(days)})
    connection.commit()


asyncio.run(run_online())
