"""Skills that are uploaded to a project. Run before the deploy that needs it: the previous version ignores them."""

from alembic import op
from scripts import save_functions

revision = "0029"
down_revision = "0028"

_TABLES = (
    # Each change of a project's skills increases it. Projects without a row never had any.
    """
CREATE TABLE project_skill_revision (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (tenant, project)
)
""",
    # A row belongs to the revisions from `since_revision` on and before `until_revision`, and never changes otherwise.
    """
CREATE TABLE project_skill (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    since_revision bigint NOT NULL,
    until_revision bigint,
    description text NOT NULL,
    size bigint NOT NULL,
    file_count integer NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    added_at timestamptz NOT NULL,
    removed_at timestamptz,
    PRIMARY KEY (tenant, project, name, since_revision)
)
""",
    # The archives are compressed already.
    "ALTER TABLE project_skill ALTER COLUMN content SET STORAGE EXTERNAL",
    "CREATE INDEX project_skill_removed ON project_skill (removed_at) WHERE removed_at IS NOT NULL",
)
_PROJECT = (
    "tenant = NULLIF(current_setting('app.tenant', true), '')"
    " AND project = NULLIF(current_setting('app.project', true), '')"
)


def upgrade() -> None:
    for statement in _TABLES:
        op.execute(statement)
    services = "everturn_ingress, everturn_worker"
    for table in ("project_skill", "project_skill_revision"):
        op.execute(f"REVOKE ALL ON {table} FROM PUBLIC")
        op.execute(f"GRANT SELECT ON {table} TO {services}")
        op.execute(f"CREATE POLICY project ON {table} TO {services} USING ({_PROJECT}) WITH CHECK ({_PROJECT})")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute("GRANT INSERT, UPDATE (revision) ON project_skill_revision TO everturn_ingress")
    op.execute("GRANT INSERT, UPDATE (until_revision, removed_at) ON project_skill TO everturn_ingress")
    op.execute("GRANT SELECT, DELETE ON project_skill TO everturn_dispatch")
    op.execute("CREATE POLICY dispatch ON project_skill TO everturn_dispatch USING (true)")
    # Its result has one more column, which CREATE OR REPLACE can't add. The previous version reads columns by name.
    op.execute("DROP FUNCTION IF EXISTS load_turn_start")
    save_functions(["load_turn_start", "remove_expired_rows"])
