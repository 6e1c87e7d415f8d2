"""The files of bundles' widgets, which the ingress serves. Run before the deploy that needs it: the previous version
ignores the table.
"""

from alembic import op

revision = "0027"
down_revision = "0026"

# The ingress needs these files and nothing else of a bundle's content.
_TABLE = """
CREATE TABLE bundle_widget_file (
    bundle_id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (bundle_id, digest, path),
    FOREIGN KEY (bundle_id, digest) REFERENCES bundle ON DELETE CASCADE
)
"""


def upgrade() -> None:
    op.execute(_TABLE)
    op.execute("ALTER TABLE bundle_widget_file ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE bundle_widget_file FORCE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY widget_reader ON bundle_widget_file FOR SELECT TO everturn_ingress USING (true)")
    op.execute("CREATE POLICY widget_publisher ON bundle_widget_file TO everturn_worker USING (true) WITH CHECK (true)")
    op.execute("GRANT SELECT ON bundle_widget_file TO everturn_ingress")
    op.execute("GRANT SELECT, INSERT ON bundle_widget_file TO everturn_worker")
