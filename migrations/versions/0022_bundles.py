"""Workers publish the bundles that they run. Run before the deploy that needs it: the previous version ignores the
table.
"""

from alembic import op

revision = "0022"
down_revision = "0021"

# One row for each version of a bundle, of the whole installation. `content` are its packed files; a version without
# them can't run, and `error` says why. Content is stored first and published by `seen_at` afterwards.
_TABLE = """
CREATE TABLE bundle (
    id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    manifest text NOT NULL DEFAULT '',
    content bytea,
    listing text NOT NULL DEFAULT '{}',
    is_default boolean NOT NULL DEFAULT false,
    error text NOT NULL DEFAULT '',
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (id, digest)
)
"""


def upgrade() -> None:
    op.execute(_TABLE)
    # The files are compressed already.
    op.execute("ALTER TABLE bundle ALTER COLUMN content SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE bundle ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE bundle FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY bundle_reader ON bundle FOR SELECT TO everturn_ingress, everturn_worker USING (true)")
    op.execute("CREATE POLICY bundle_publisher ON bundle TO everturn_worker USING (true) WITH CHECK (true)")
    op.execute("GRANT SELECT ON bundle TO everturn_ingress")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON bundle TO everturn_worker")
