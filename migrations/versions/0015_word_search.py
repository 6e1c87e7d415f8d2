"""A word search ranks rare words before common ones, and finds all of one conversation.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0015"
down_revision = "0014"

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    # Replaced in its place, with the rights that it has.
    _run(SQL / "functions" / "search_snippets.sql")
    op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
