"""Collections of people: documents that they upload once and use in any conversation. Run before the deploy; the
previous version does not use them.

Their passages lie in the tables of knowledge, in spaces of the bundle `/collections` that are named by their ids.
"""

from alembic import op
from scripts import save_functions

revision = "0026"
down_revision = "0025"

TABLES = """
-- A document that is added, replaced or deleted increases `revision`; `built_revision` and `built_encoder` are those of
-- the index. A worker claims a collection with `due_at` when they differ.
CREATE TABLE collection (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    title text NOT NULL CHECK (length(title) BETWEEN 1 AND 300),
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('user', 'project')),
    created_at timestamptz NOT NULL,
    revision bigint NOT NULL DEFAULT 0,
    built_revision bigint NOT NULL DEFAULT 0,
    built_encoder text COLLATE "C",
    due_at timestamptz NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    error text
);
CREATE INDEX collection_of_project ON collection (tenant, project, user_id);
CREATE INDEX collection_due ON collection (due_at);

-- `indexed` is false until the served index has this content; `error` says why it never will.
CREATE TABLE collection_document (
    id text COLLATE "C" PRIMARY KEY,
    collection_id text COLLATE "C" NOT NULL REFERENCES collection ON DELETE CASCADE,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    mime text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    object_key text COLLATE "C" NOT NULL UNIQUE,
    added_at timestamptz NOT NULL,
    indexed boolean NOT NULL DEFAULT false,
    error text,
    UNIQUE (collection_id, name)
);
"""
OWNER = (
    "tenant = NULLIF(current_setting('app.tenant', true), '')"
    " AND project = NULLIF(current_setting('app.project', true), '')"
    " AND user_id = NULLIF(current_setting('app.user_id', true), '')"
)
PROJECT = (
    "tenant = NULLIF(current_setting('app.tenant', true), '')"
    " AND project = NULLIF(current_setting('app.project', true), '')"
)

SHARED = "EXISTS (SELECT FROM collection c WHERE c.id = collection_id AND c.scope = 'project')"


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
    for table in ("collection", "collection_document"):
        op.execute(f"REVOKE ALL ON {table} FROM PUBLIC")
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO everturn_ingress")
        op.execute(f"GRANT SELECT, UPDATE ON {table} TO everturn_worker, everturn_dispatch")
        services = "everturn_ingress, everturn_worker"
        op.execute(f"CREATE POLICY principal ON {table} TO {services} USING ({OWNER}) WITH CHECK ({OWNER})")
        op.execute(f"CREATE POLICY dispatch ON {table} TO everturn_dispatch USING (true) WITH CHECK (true)")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    services = "everturn_ingress, everturn_worker"
    op.execute(f"CREATE POLICY shared ON collection FOR SELECT TO {services} USING ({PROJECT} AND scope = 'project')")
    op.execute(f"CREATE POLICY shared ON collection_document FOR SELECT TO {services} USING ({PROJECT} AND {SHARED})")
    save_functions(
        [
            "served_knowledge",
            "delete_unwanted_knowledge",
            "find_orphan_objects",
            "claim_collection",
            "prune_collection",
            "forget_collection_document",
            "forget_collection",
        ]
    )
    functions = "forget_collection, forget_collection_document"
    op.execute("SET LOCAL ROLE everturn_dispatch")
    op.execute(f"GRANT EXECUTE ON FUNCTION {functions} TO SESSION_USER")
    op.execute("RESET ROLE")
    op.execute(
        "CREATE TRIGGER forget_collection_document AFTER DELETE OR UPDATE OF sha256 ON collection_document "
        "FOR EACH ROW EXECUTE FUNCTION forget_collection_document()"
    )
    op.execute(
        "CREATE TRIGGER forget_collection BEFORE DELETE ON collection FOR EACH ROW EXECUTE FUNCTION forget_collection()"
    )
    op.execute("SET LOCAL ROLE everturn_dispatch")
    op.execute(f"REVOKE EXECUTE ON FUNCTION {functions} FROM SESSION_USER")
    op.execute("RESET ROLE")
