"""A turn knows how long workers held it, and a renewal says which leases it did not renew.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0012"
down_revision = "0011"

SQL = Path(__file__).parents[1] / "sql" / "0012"
DEFINER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "count_leased_time": (),
    "renew_leases": ("everturn_worker",),
}
"""Functions of sql/0012/functions, which run as everturn_dispatch, and who may call them."""


def upgrade() -> None:
    _run(SQL / "leased_time.sql")
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    for name in DEFINER_FUNCTIONS:
        _run(SQL / "functions" / f"{name}.sql")
    op.execute("RESET ROLE")
    # Before the rights are taken away: whoever creates a trigger must be allowed to call its function.
    _run(SQL / "triggers.sql")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    for name, callers in DEFINER_FUNCTIONS.items():
        op.execute(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC")
        if callers:
            op.execute(f"GRANT EXECUTE ON FUNCTION {name} TO {', '.join(callers)}")
    op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
