"""What a worker under a lease may still commit is no orphan.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0008"
down_revision = "0007"

SQL = Path(__file__).parents[1] / "sql"
DEFINER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "find_orphan_objects": ("everturn_ingress", "everturn_worker"),
}
"""Functions of sql/0008/functions, which run as everturn_dispatch, and who may call them."""


def upgrade() -> None:
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    for name, callers in DEFINER_FUNCTIONS.items():
        _run(SQL / "0008" / "functions" / f"{name}.sql")
        op.execute(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {name} TO {', '.join(callers)}")
    op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
