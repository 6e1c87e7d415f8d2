"""What the whole ingress keeps. Run before the deploy that uses it. Forward only."""

from pathlib import Path

import asyncpg
from alembic import op
from sqlalchemy.util import await_only

revision = "0004"
down_revision = "0003"

SQL = Path(__file__).parents[1] / "sql"
SCRIPTS: tuple[str, ...] = ("rest", "keys", "life", "attachments")
"""Files of sql/0004, in the order they run."""
DEFINER_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "append_fork_blocks": ("everturn_ingress",),
    "copy_fork_sources": ("everturn_ingress",),
    "erase_conversation": ("everturn_ingress",),
    "remove_expired_rows": ("everturn_worker",),
    "count_remains": ("everturn_ingress",),
    "named_objects": ("everturn_ingress",),
    "find_api_key": ("everturn_ingress",),
    "find_orphan_objects": ("everturn_ingress",),
    "find_credential_cutoff": ("everturn_ingress",),
    "project_feedback_totals": ("everturn_ingress",),
    "project_judged_conversations": ("everturn_ingress",),
    "queue_depth": ("everturn_ingress",),
    "take_place": ("everturn_ingress",),
}
"""Functions that run as everturn_dispatch, and who may call them; those of sql/0004/functions come before others."""


def upgrade() -> None:
    for script in SCRIPTS:
        _run(SQL / "0004" / f"{script}.sql")
    op.execute("GRANT CREATE ON SCHEMA public TO everturn_dispatch")
    op.execute("SET LOCAL ROLE everturn_dispatch")
    for name, callers in DEFINER_FUNCTIONS.items():
        own = SQL / "0004" / "functions" / f"{name}.sql"
        _run(own if own.exists() else SQL / "functions" / f"{name}.sql")
        op.execute(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {name} TO {', '.join(callers)}")
    op.execute("RESET ROLE")
    op.execute("REVOKE CREATE ON SCHEMA public FROM everturn_dispatch")


def _run(path: Path) -> None:
    """A file holds many statements, which the driver takes only as one simple query."""
    op.execute("SELECT 1")  # the adapter begins its transaction with the first statement that goes through it
    driver: asyncpg.Connection = op.get_bind().connection.driver_connection
    await_only(driver.execute(path.read_text()))
