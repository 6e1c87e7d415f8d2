"""Conversations, turns, blocks and all that a text turn needs. Run before the first deploy. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0001"
down_revision = None

SQL = Path(__file__).parents[1] / "sql"
DEFINER_FUNCTIONS = {
    "claim_conversation": ("everturn_worker",),
    "renew_leases": ("everturn_worker",),
    "release_lease": ("everturn_worker",),
    "due_doorbells": ("everturn_worker",),
    "next_of_tenant": ("everturn_worker",),
    "take_doorbell": ("everturn_ingress", "everturn_worker"),
    "erase_conversation": ("everturn_ingress",),
}
"""Functions that run as everturn_dispatch, and who may call them."""


def upgrade() -> None:
    for script in ("0001_roles", "0001_tables", "0001_policies", "0001_grants"):
        _run(SQL / f"{script}.sql")
    _run(SQL / "functions" / "append_blocks.sql")
    _own_definer_functions()


def _own_definer_functions() -> None:
    """A new owner needs CREATE on the schema at the moment of the change, and not a moment longer."""
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    for name, callers in DEFINER_FUNCTIONS.items():
        _run(SQL / "functions" / f"{name}.sql")
        op.execute(f"ALTER FUNCTION {name} OWNER TO everturn_dispatch")
        op.execute("SET LOCAL ROLE everturn_dispatch")
        op.execute(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {name} TO {', '.join(callers)}")
        op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
