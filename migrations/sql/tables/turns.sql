-- lane and roles are those of the principal who asked. first_seq is where the turn's blocks begin, so that reading some
-- turns reads no others. A turn with the status `waiting` waits for a person: no lease, no place in the queue.
-- doorbell_at is the latest ring, and empty while the tenant has its share of the lane. rung_at is the first ring since
-- the turn waits, and so its place on the lane; a trigger sets it.
-- leased_s is how long workers held the turn under leases that have ended; a trigger adds to it. The time limit of a
-- turn counts this and the age of its present lease, but no time in the queue, without a worker, or waiting for a
-- person. Ended turns without indexed_at are the indexer's queue; a claimed one is due again at index_due_at.
CREATE TABLE turn (
    id text COLLATE "C" PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL,
    first_seq bigint,
    status text NOT NULL DEFAULT 'queued'
        CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    attempt integer NOT NULL DEFAULT 0,
    lane text COLLATE "C" NOT NULL,
    roles text[] NOT NULL,
    request text NOT NULL,
    outcome text,
    usage text,
    error text,
    doorbell_at timestamptz,
    rings integer NOT NULL DEFAULT 0,
    announced_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    ended_at timestamptz,
    indexed_at timestamptz,
    index_due_at timestamptz NOT NULL DEFAULT now(),
    index_tries integer NOT NULL DEFAULT 0,
    rung_at timestamptz,
    leased_s double precision NOT NULL DEFAULT 0,
    UNIQUE (conversation_id, ordinal)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX turn_one_open ON turn (conversation_id) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX turn_waiting ON turn (tenant, lane, doorbell_at, created_at) WHERE status = 'queued';
CREATE INDEX turn_on_lane ON turn (lane, rung_at, id) WHERE status = 'queued' AND rung_at IS NOT NULL;
CREATE INDEX turn_running ON turn (tenant, user_id, lane, conversation_id) WHERE status = 'running';
CREATE INDEX turn_unannounced ON turn (conversation_id)
    WHERE announced_at IS NULL AND status IN ('completed', 'failed', 'cancelled');
CREATE INDEX turn_unindexed ON turn (index_due_at)
    WHERE indexed_at IS NULL AND status IN ('completed', 'failed', 'cancelled');
CREATE INDEX turn_by_time ON turn (tenant, project, user_id, created_at);

-- A row exists while a worker holds the conversation; the fence remains in the conversation's row. An extra lease is
-- one beyond the ordinary slots of the workers; how many a group may have depends on how many are free. Services have
-- no rights on this table: functions are the only way to it.
CREATE TABLE lease (
    conversation_id text COLLATE "C" PRIMARY KEY REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    owner text NOT NULL,
    fence bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    extra boolean NOT NULL DEFAULT false,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- inbox_seq is the conversation's when the signal was accepted, and so the order of signals. turn_id is empty for an
-- event that came while the conversation had no open turn; the next turn applies it.
CREATE TABLE signal (
    id text COLLATE "C" PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" REFERENCES turn (id),
    inbox_seq bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('followup', 'steer', 'cancel', 'event', 'approve', 'deny')),
    payload text NOT NULL,
    state text NOT NULL DEFAULT 'accepted'
        CHECK (state IN ('accepted', 'applied', 'promoted', 'expired', 'rejected', 'retracted')),
    round integer,
    promoted_to text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX signal_of_turn ON signal (turn_id, inbox_seq);
CREATE INDEX signal_of_conversation ON signal (conversation_id);

-- One call that a person must approve. The row decides between the first answer, the deadline and the end of the turn,
-- each of which locks the conversation's row first. signal_id is the answer. The turn's blocks hold the question.
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
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'denied', 'expired', 'withdrawn')),
    signal_id text COLLATE "C",
    expires_at timestamptz NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz
);
CREATE INDEX approval_of_turn ON approval (turn_id);
CREATE INDEX approval_of_conversation ON approval (conversation_id);
CREATE INDEX approval_due ON approval (expires_at) WHERE state = 'pending';

-- The ledger of calls of tools. Calls of programs have rows of their own: `occurrence` numbers equal calls of one run,
-- and `reply` is the result, so that a repeated run gets the same answer. Other calls use the defaults.
CREATE TABLE tool_effect (
    turn_id text COLLATE "C" NOT NULL REFERENCES turn (id),
    call_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    tool_id text NOT NULL,
    args_hash text COLLATE "C" NOT NULL,
    effect text NOT NULL CHECK (effect IN ('pure', 'idempotent', 'irreversible')),
    state text NOT NULL CHECK (state IN ('intended', 'committed', 'failed', 'ambiguous')),
    occurrence integer NOT NULL DEFAULT 1 CHECK (occurrence > 0),
    reply text NOT NULL DEFAULT '' CHECK (octet_length(reply) <= 65536),
    PRIMARY KEY (turn_id, call_id)
);
CREATE INDEX tool_effect_of_conversation ON tool_effect (conversation_id);

-- A row is inserted before the work that it guards and commits with it: a concurrent request with the same key waits
-- for the primary key.
CREATE TABLE idempotency (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    route text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    request_hash text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    response text NOT NULL DEFAULT '',
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, project, user_id, route, key)
);
CREATE INDEX idempotency_of_conversation ON idempotency (conversation_id);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);
