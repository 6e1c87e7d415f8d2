"""Runs the migrations as the owner of the tables, one migrator at a time.

Each migration is one transaction, up to the indexes that it builds beside writers (`indexes.py`)."""

import asyncio
import os
import time

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

MIGRATOR_LOCK = 7_310_422_001
"""An arbitrary number that all migrators of one database agree on."""
TURN_POLL_S = 0.2
TURN_WAIT_S = 3_600.0
"""How long another migrator is waited for: an index of a large table takes its time."""
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
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
    _save_retention(connection)


def _wait_for_turn(connection: Connection) -> None:
    """Return once no other migrator is at work; the lock is held until the connection ends.

    Asked for again and again, because a query that waits holds a snapshot: the other migrator's CREATE INDEX
    CONCURRENTLY would wait for its end, and both would be stuck.
    """
    deadline_s = time.monotonic() + TURN_WAIT_S
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": MIGRATOR_LOCK}):
        connection.rollback()
        if time.monotonic() > deadline_s:
            raise SystemExit(f"Another migrator has been at work for {TURN_WAIT_S:g} s. Try again when it is done.")
        await_only(asyncio.sleep(TURN_POLL_S))


def _save_retention(connection: Connection) -> None:
    """Tell the database RETENTION_DAYS, where it is set: workers may then expire nothing that is younger."""
    days = os.environ.get("RETENTION_DAYS", "")
    if not days:
        return
    if not (days.isascii() and days.isdigit() and int(days) <= MAX_RETENTION_DAYS):
        raise SystemExit(f"RETENTION_DAYS must be a number of days from 0 to {MAX_RETENTION_DAYS}.")
    if connection.scalar(text("SELECT to_regclass('retention_limit')")) is not None:
        connection.execute(text("UPDATE retention_limit SET min_days = NULLIF(:days, 0)"), {"days": int(days)})
    connection.commit()


asyncio.run(run_online())
