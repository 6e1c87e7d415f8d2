"""Knowledge of agents: spaces, documents, passages. Run before the deploy; the previous version does not use them.

A space belongs to the installation and not to a tenant. No service has rights on the tables: workers call functions
that take the bundle and the names of its spaces.
"""

from alembic import op
from scripts import save_functions

revision = "0024"
down_revision = "0023"

TABLES = """
-- One version of a space. `wanted_at` is renewed by the workers whose bundle has this version. The holder of the lease
-- builds it.
CREATE TABLE knowledge_space (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bundle_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    signature text COLLATE "C" NOT NULL,
    encoder text COLLATE "C" NOT NULL,
    untrusted boolean NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('building', 'ready', 'failed')),
    error text,
    documents integer NOT NULL DEFAULT 0,
    passages integer NOT NULL DEFAULT 0,
    holder text COLLATE "C",
    lease_until timestamptz,
    tries integer NOT NULL DEFAULT 0,
    retry_at timestamptz,
    wanted_at timestamptz NOT NULL,
    built_at timestamptz,
    UNIQUE (bundle_id, name, signature)
);

CREATE TABLE knowledge_document (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL REFERENCES knowledge_space ON DELETE CASCADE,
    path text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    title text NOT NULL,
    text text NOT NULL CHECK (length(text) <= 1048576),
    passages integer NOT NULL,
    UNIQUE (version, path)
);

-- `words` begin with the version, so that a search never lists those of others. PLAIN keeps the embedding in the row: a
-- search reads it from every row of a version.
CREATE TABLE knowledge_passage (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL,
    document bigint NOT NULL REFERENCES knowledge_document ON DELETE CASCADE,
    heading text NOT NULL,
    start_line integer NOT NULL,
    end_line integer NOT NULL,
    start_char integer NOT NULL,
    chars integer NOT NULL,
    words text[] COLLATE "C" NOT NULL,
    embedding vector(384) STORAGE PLAIN NOT NULL
);
CREATE INDEX knowledge_passage_of_version ON knowledge_passage (version);
CREATE INDEX knowledge_passage_of_document ON knowledge_passage (document);
CREATE INDEX knowledge_passage_words ON knowledge_passage USING gin (words);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
    for table in ("knowledge_space", "knowledge_document", "knowledge_passage"):
        op.execute(f"REVOKE ALL ON {table} FROM PUBLIC")
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO everturn_dispatch")
        op.execute(f"CREATE POLICY dispatch ON {table} TO everturn_dispatch USING (true) WITH CHECK (true)")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    save_functions(
        [
            "served_knowledge",
            "leased_knowledge",
            "want_knowledge",
            "lease_knowledge",
            "saved_knowledge",
            "copy_knowledge",
            "save_knowledge",
            "finish_knowledge",
            "delete_unwanted_knowledge",
            "search_knowledge",
            "load_knowledge",
            "knowledge_paths",
            "knowledge_status",
        ]
    )
