"""When people's accounts at MCP servers were last used, so that unused ones are deleted. Run before the deploy: the
previous version does not note the use, so a connection counts as used when this runs."""

from alembic import op
from scripts import save_functions

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.execute("ALTER TABLE mcp_connection ADD COLUMN used_at timestamptz NOT NULL DEFAULT now()")
    # SELECT ... FOR UPDATE needs the right to update a column.
    op.execute(
        "GRANT SELECT (ctid, used_at, connected_at, lease_until), UPDATE (lease_until), DELETE ON mcp_connection"
        " TO everturn_dispatch"
    )
    save_functions(["remove_expired_rows"])
