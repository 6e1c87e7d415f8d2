"""Answers to links for accounts can be repeated. Run before the deploy; the previous version continues without it."""

from alembic import op
from scripts import save_functions

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    # Of a link's secret and its code: the same in all requests that this answer settled.
    op.execute("ALTER TABLE mcp_request ADD COLUMN answer_hash bytea")
    op.execute("GRANT UPDATE (answer_hash) ON mcp_request TO everturn_dispatch")
    # It gets one more parameter, which has a default: the previous version calls it without.
    op.execute("DROP FUNCTION IF EXISTS find_mcp_request")
    save_functions(["find_mcp_request", "answer_mcp_request"])
