"""Links for accounts stay open when a connection is deleted. Run before the deploy; the previous version deletes them."""

from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.execute("GRANT SELECT (answered_at) ON mcp_request TO everturn_ingress")
