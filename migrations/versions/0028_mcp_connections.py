"""People's own accounts at MCP servers. Run before the deploy; the previous version does not use them.

`sealed` is encrypted with a key that only workers have; the ingress lists and deletes connections without reading it.
"""

from alembic import op
from scripts import save_functions

revision = "0028"
down_revision = "0027"

TABLES = """
-- The tokens of one person for one server of a bundle. `version` grows with each renewal; the holder of the lease makes
-- the next one. Without tokens, a worker exchanges the code of a new connection until the lease ends.
CREATE TABLE mcp_connection (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    bundle_id text COLLATE "C" NOT NULL,
    server text COLLATE "C" NOT NULL,
    title text NOT NULL,
    sealed bytea CHECK (octet_length(sealed) <= 131072),
    version integer NOT NULL DEFAULT 1,
    lease_until timestamptz,
    connected_at timestamptz CHECK ((connected_at IS NULL) = (sealed IS NULL)),
    PRIMARY KEY (tenant, project, user_id, bundle_id, server)
);

-- A link that a person was shown. `code` is the authorization server's answer, which a worker exchanges for tokens.
CREATE TABLE mcp_request (
    approval_id text COLLATE "C" PRIMARY KEY,
    state_hash text COLLATE "C" NOT NULL UNIQUE,
    conversation_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    bundle_id text COLLATE "C" NOT NULL,
    server text COLLATE "C" NOT NULL,
    title text NOT NULL,
    sealed bytea NOT NULL CHECK (octet_length(sealed) <= 131072),
    expires_at timestamptz NOT NULL,
    code text CHECK (octet_length(code) <= 4096),
    issuer text CHECK (octet_length(issuer) <= 4096),
    answered_at timestamptz
);
CREATE INDEX mcp_request_of_person ON mcp_request (tenant, project, user_id, bundle_id, server);
CREATE INDEX mcp_request_of_conversation ON mcp_request (conversation_id);
"""
PRINCIPAL = (
    "tenant = NULLIF(current_setting('app.tenant', true), '')"
    " AND project = NULLIF(current_setting('app.project', true), '')"
    " AND user_id = NULLIF(current_setting('app.user_id', true), '')"
)


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
    for table in ("mcp_connection", "mcp_request"):
        op.execute(f"REVOKE ALL ON {table} FROM PUBLIC")
        op.execute(
            f"CREATE POLICY principal ON {table} TO everturn_ingress, everturn_worker"
            f" USING ({PRINCIPAL}) WITH CHECK ({PRINCIPAL})"
        )
        op.execute(f"CREATE POLICY dispatch ON {table} TO everturn_dispatch USING (true) WITH CHECK (true)")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON mcp_connection, mcp_request TO everturn_worker")
    op.execute(
        "GRANT SELECT (tenant, project, user_id, bundle_id, server, title, connected_at) ON mcp_connection"
        " TO everturn_ingress"
    )
    op.execute("GRANT SELECT (tenant, project, user_id, bundle_id, server) ON mcp_request TO everturn_ingress")
    op.execute("GRANT DELETE ON mcp_connection, mcp_request TO everturn_ingress")
    op.execute("GRANT SELECT, UPDATE (code, issuer, answered_at), DELETE ON mcp_request TO everturn_dispatch")
    save_functions(["find_mcp_request", "answer_mcp_request", "erase_conversation", "remove_expired_rows"])
