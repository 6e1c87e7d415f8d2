"""Links for accounts stay open when a connection is deleted, and only an account answers their questions. Run before
the deploy; the previous version deletes all links, and says of such a question that it is already settled."""

from alembic import op
from scripts import save_functions

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.execute("GRANT SELECT (answered_at) ON mcp_request TO everturn_ingress")
    op.execute("GRANT SELECT (tenant, project, user_id, bundle_id, server) ON mcp_connection TO everturn_dispatch")
    save_functions(["answer_approval"])
