"""Runs the migrations as the owner of the tables, one migrator at a time, each migration in one transaction."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

MIGRATOR_LOCK = 7_310_422_001
"""An arbitrary number that all migrators of one database agree on."""
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
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATOR_LOCK})
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
    _save_retention(connection)


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
