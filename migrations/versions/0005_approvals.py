"""Calls that a person is asked about first, and places in the queue. Conversations that a person named or judged are
kept like those that were talked in, and expire one by one. Run before the deploy that uses it: services of the version
before go on, as long as no tool asks. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0005"
down_revision = "0004"

SQL = Path(__file__).parents[1] / "sql"
SCRIPTS: tuple[str, ...] = ("retention", "queue", "approvals")
"""Files of sql/0005, in the order they run."""
DEFINER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "wake_turn": ("everturn_ingress",),
    "answer_approval": ("everturn_ingress",),
    "park_turn": ("everturn_worker",),
    "expire_approvals": ("everturn_worker",),
    "erase_conversation": ("everturn_ingress",),
    "due_conversations": ("everturn_worker",),
    "expire_conversation": ("everturn_worker",),
    "queue_positions": ("everturn_ingress",),
}
"""Functions of sql/0005/functions, which run as everturn_dispatch, and who may call them."""


def upgrade() -> None:
    for script in SCRIPTS:
        _run(SQL / "0005" / f"{script}.sql")
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    for name, callers in DEFINER_FUNCTIONS.items():
        _run(SQL / "0005" / "functions" / f"{name}.sql")
        op.execute(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {name} TO {', '.join(callers)}")
    op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
