"""The operator says in the database how young a conversation may be that expires.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0009"
down_revision = "0008"

SQL = Path(__file__).parents[1] / "sql"
DEFINER_FUNCTIONS = ("due_conversations", "expire_conversation", "remove_expired_rows")
"""Functions of sql/0009/functions, which run as everturn_dispatch; who may call them stays as it was."""


def upgrade() -> None:
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    # Of databases that were made by an early 0004: its age was the caller's.
    op.execute("DROP FUNCTION IF EXISTS erase_expired(interval, integer)")
    op.execute("RESET ROLE")
    _run(SQL / "0009" / "retention.sql")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    for name in DEFINER_FUNCTIONS:
        _run(SQL / "0009" / "functions" / f"{name}.sql")
    op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
