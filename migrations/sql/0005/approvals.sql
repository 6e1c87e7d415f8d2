-- A turn that waits for a person has the status `waiting`: no lease, no place in the queue, nobody's work.
ALTER TABLE conversation DROP CONSTRAINT conversation_state_check;
ALTER TABLE conversation ADD CONSTRAINT conversation_state_check
    CHECK (state IN ('idle', 'queued', 'running', 'waiting', 'error'));
ALTER TABLE turn DROP CONSTRAINT turn_status_check;
ALTER TABLE turn ADD CONSTRAINT turn_status_check
    CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled'));
DROP INDEX turn_one_open;
CREATE UNIQUE INDEX turn_one_open ON turn (conversation_id) WHERE status IN ('queued', 'running', 'waiting');

ALTER TABLE signal DROP CONSTRAINT signal_kind_check;
ALTER TABLE signal ADD CONSTRAINT signal_kind_check
    CHECK (kind IN ('followup', 'steer', 'cancel', 'event', 'approve', 'deny'));

-- One call that a person is asked about. The row decides: the first answer, the deadline or the end of the turn, which
-- all lock the conversation's row first. signal_id is the answer. The blocks of the turn tell what was asked.
CREATE TABLE approval (
    id text COLLATE "C" PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL REFERENCES turn (id),
    call_id text COLLATE "C" NOT NULL,
    tool_id text NOT NULL,
    args_hash text COLLATE "C" NOT NULL,
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'approved', 'denied', 'expired', 'withdrawn')),
    signal_id text COLLATE "C",
    expires_at timestamptz NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz
);
CREATE INDEX approval_of_turn ON approval (turn_id);
CREATE INDEX approval_of_conversation ON approval (conversation_id);
CREATE INDEX approval_due ON approval (expires_at) WHERE state = 'pending';

ALTER TABLE approval ENABLE ROW LEVEL SECURITY;
ALTER TABLE approval FORCE ROW LEVEL SECURITY;
CREATE POLICY principal ON approval TO everturn_ingress, everturn_worker
    USING (tenant = NULLIF(current_setting('app.tenant', true), '')
           AND project = NULLIF(current_setting('app.project', true), '')
           AND user_id = NULLIF(current_setting('app.user_id', true), ''))
    WITH CHECK (tenant = NULLIF(current_setting('app.tenant', true), '')
                AND project = NULLIF(current_setting('app.project', true), '')
                AND user_id = NULLIF(current_setting('app.user_id', true), ''));
CREATE POLICY dispatch ON approval TO everturn_dispatch USING (true) WITH CHECK (true);

REVOKE ALL ON approval FROM PUBLIC;
GRANT SELECT ON approval TO everturn_ingress;
GRANT SELECT, INSERT ON approval TO everturn_worker;
GRANT UPDATE (state, settled_at) ON approval TO everturn_worker;
GRANT SELECT, DELETE ON approval TO everturn_dispatch;
GRANT UPDATE (state, signal_id, settled_at) ON approval TO everturn_dispatch;
