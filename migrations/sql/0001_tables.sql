-- Ids are text in C order. Bodies are JSON as text, because jsonb refuses U+0000 and changes the bytes a hash is over.
-- Columns that every commit changes stand in no index, so that such an update stays on its page.

CREATE TABLE conversation (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    bundle_id text,
    title text NOT NULL DEFAULT '',
    state text NOT NULL DEFAULT 'idle' CHECK (state IN ('idle', 'queued', 'running', 'error')),
    archived boolean NOT NULL DEFAULT false,
    fence bigint NOT NULL DEFAULT 0,
    next_seq bigint NOT NULL DEFAULT 1,
    inbox_seq bigint NOT NULL DEFAULT 0,
    last_hash text COLLATE "C" NOT NULL DEFAULT repeat('0', 64),
    event_cursor text COLLATE "C" NOT NULL DEFAULT '0-0',
    created_at timestamptz NOT NULL DEFAULT now(),
    last_activity_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80);
CREATE INDEX conversation_newest ON conversation (tenant, project, user_id, last_activity_at DESC, id DESC);

-- A lease exists while somebody holds it; the fence lives on in the conversation.
CREATE TABLE lease (
    conversation_id text COLLATE "C" PRIMARY KEY REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    owner text NOT NULL,
    fence bigint NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- lane and roles are those of the principal who asked. doorbell_at is empty while the tenant has its share of the lane.
-- first_seq is where the turn's blocks begin, so that reading some turns reads no others.
CREATE TABLE turn (
    id text COLLATE "C" PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL,
    first_seq bigint,
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
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
    UNIQUE (conversation_id, ordinal)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX turn_one_open ON turn (conversation_id) WHERE status IN ('queued', 'running');
CREATE INDEX turn_waiting ON turn (tenant, lane, doorbell_at, created_at) WHERE status = 'queued';
CREATE INDEX turn_unannounced ON turn (conversation_id)
    WHERE announced_at IS NULL AND status IN ('completed', 'failed', 'cancelled');

-- No foreign key: append_blocks, the one way in, writes the conversation's row first. ts and ts_first are the texts
-- that the hash is over.
CREATE TABLE block (
    conversation_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    round integer NOT NULL,
    type text COLLATE "C" NOT NULL,
    author text COLLATE "C" NOT NULL,
    ref text NOT NULL,
    call_id text COLLATE "C",
    mime text COLLATE "C" NOT NULL DEFAULT 'application/json',
    body text NOT NULL,
    ts text COLLATE "C" NOT NULL,
    ts_first text COLLATE "C",
    hash text COLLATE "C" NOT NULL,
    PRIMARY KEY (conversation_id, seq)
);

-- turn_id is where the file was first named; a file that came with a signal names a turn that was never opened.
CREATE TABLE artifact (
    id text COLLATE "C" PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    ref text NOT NULL,
    rn text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('attachment', 'file', 'output')),
    filename text NOT NULL,
    path text NOT NULL,
    mime text NOT NULL,
    size bigint NOT NULL CHECK (size >= 0),
    sha256 text COLLATE "C" NOT NULL,
    object_key text COLLATE "C" NOT NULL,
    visibility text NOT NULL CHECK (visibility IN ('internal', 'external')),
    verdict text NOT NULL,
    description text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX artifact_by_ref ON artifact (conversation_id, ref, id DESC);

-- inbox_seq is the conversation's when the signal came: the order in which signals were said.
CREATE TABLE signal (
    id text COLLATE "C" PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL REFERENCES turn (id),
    inbox_seq bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('followup', 'steer', 'cancel')),
    payload text NOT NULL,
    state text NOT NULL DEFAULT 'accepted'
        CHECK (state IN ('accepted', 'applied', 'promoted', 'expired', 'rejected', 'retracted')),
    round integer,
    promoted_to text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX signal_of_turn ON signal (turn_id, inbox_seq);
CREATE INDEX signal_of_conversation ON signal (conversation_id);

-- told: a block tells the model of this judgement.
CREATE TABLE feedback (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL REFERENCES turn (id),
    origin text NOT NULL CHECK (origin IN ('user', 'machine')),
    reaction text CHECK (reaction IN ('ok', 'not_ok', 'neutral')),
    text text NOT NULL,
    confidence double precision CHECK (confidence BETWEEN 0 AND 1),
    ts timestamptz NOT NULL,
    told boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX feedback_one_of_user ON feedback (turn_id) WHERE origin = 'user';
CREATE INDEX feedback_of_conversation ON feedback (conversation_id);
CREATE INDEX feedback_of_turn ON feedback (turn_id);

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
    PRIMARY KEY (turn_id, call_id)
);
CREATE INDEX tool_effect_of_conversation ON tool_effect (conversation_id);

CREATE TABLE usage_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL REFERENCES turn (id),
    model text NOT NULL,
    role text NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    estimated boolean NOT NULL,
    ts timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX usage_event_of_turn ON usage_event (turn_id);
CREATE INDEX usage_event_of_conversation ON usage_event (conversation_id);

-- A row stands before the work it guards and commits with it: a twin waits on the primary key.
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
