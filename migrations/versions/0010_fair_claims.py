"""Running turns are bounded by user and tenant where turns are claimed.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0010"
down_revision = "0009"

SQL = Path(__file__).parents[1] / "sql"
SCRIPTS: tuple[str, ...] = ("fair_claims",)
"""Files of sql/0010, in the order they run."""
DEFINER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "rank_waiting": (),
    "find_extra_turn": ("everturn_worker",),
    "claim_fairly": ("everturn_worker",),
}
"""Functions of sql/0010/functions, which run as everturn_dispatch, and who may call them."""


def upgrade() -> None:
    for script in SCRIPTS:
        _run(SQL / "0010" / f"{script}.sql")
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    for name, callers in DEFINER_FUNCTIONS.items():
        _run(SQL / "0010" / "functions" / f"{name}.sql")
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
