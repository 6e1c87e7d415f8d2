"""Usage survives the deletion of a conversation as sums by person, day and model.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0014"
down_revision = "0013"

SQL = Path(__file__).parents[1] / "sql" / "0014"


def upgrade() -> None:
    _run(SQL / "usage_total.sql")
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    _run(SQL / "functions" / "add_usage_totals.sql")
    op.execute("REVOKE ALL ON FUNCTION add_usage_totals FROM PUBLIC")
    op.execute("GRANT EXECUTE ON FUNCTION add_usage_totals TO SESSION_USER")  # only to make the trigger
    op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")
    _run(SQL / "trigger.sql")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    op.execute("REVOKE EXECUTE ON FUNCTION add_usage_totals FROM SESSION_USER")
    op.execute("RESET ROLE")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
