"""Runs of programs that go on while their turn waits without a worker. Run before the deploy; the previous version
neither detaches runs nor monitors those of others, so finish the update before you set `detach_after_s`."""

from alembic import op
from scripts import save_functions

revision = "0033"
down_revision = "0032"

TABLE = """
-- One run of a program that its turn waits for. `run_id` names this start of it; a lost run is started again under
-- another one. `task` is the engine's name, empty until it is known. The holder monitors the run until `held_until`;
-- then any worker may. `ended_as` is empty while it runs.
CREATE TABLE detached_run (
    turn_id text COLLATE "C" NOT NULL REFERENCES turn (id),
    call_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL UNIQUE,
    starts integer NOT NULL DEFAULT 1,
    engine text NOT NULL,
    task text NOT NULL DEFAULT '',
    ended_as text NOT NULL DEFAULT '' CHECK (ended_as IN ('', 'finished', 'lost', 'failed', 'overdue')),
    detail text NOT NULL DEFAULT '' CHECK (length(detail) <= 500),
    holder text NOT NULL,
    held_until timestamptz NOT NULL,
    ends_by timestamptz NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (turn_id, call_id)
)
"""
PRINCIPAL = (
    "tenant = NULLIF(current_setting('app.tenant', true), '')"
    " AND project = NULLIF(current_setting('app.project', true), '')"
    " AND user_id = NULLIF(current_setting('app.user_id', true), '')"
)


def upgrade() -> None:
    op.execute(TABLE)
    op.execute("CREATE INDEX detached_run_due ON detached_run (held_until)")
    op.execute("CREATE INDEX detached_run_of_conversation ON detached_run (conversation_id)")
    op.execute("REVOKE ALL ON detached_run FROM PUBLIC")
    op.execute(
        f"CREATE POLICY principal ON detached_run TO everturn_worker USING ({PRINCIPAL}) WITH CHECK ({PRINCIPAL})"
    )
    op.execute("CREATE POLICY dispatch ON detached_run TO everturn_dispatch USING (true) WITH CHECK (true)")
    op.execute("ALTER TABLE detached_run ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE detached_run FORCE ROW LEVEL SECURITY")
    op.execute("GRANT SELECT, INSERT, UPDATE ON detached_run TO everturn_worker")
    op.execute(
        "GRANT SELECT, DELETE, UPDATE (holder, held_until, ended_as, detail) ON detached_run TO everturn_dispatch"
    )
    save_functions(["park_turn", "erase_conversation", "find_orphan_objects", "save_knowledge", "copy_knowledge"])
    save_functions(["hold_detached_runs", "end_detached_run", "remove_detached_run", "known_detached_runs"])
