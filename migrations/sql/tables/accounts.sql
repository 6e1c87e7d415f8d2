-- Credentials are looked up before the caller is known, so no policy can name a principal. Services have no rights on
-- these two tables; functions show them one key or one person at a time. An operator (the migrating role, as
-- everturn_dispatch) creates and revokes credentials.
CREATE TABLE api_key (
    id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[0-9a-f]{16}$'),
    secret_hash text COLLATE "C" NOT NULL CHECK (secret_hash ~ '^[0-9a-f]{64}$'),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    roles text[] NOT NULL,
    label text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_on date
);
CREATE INDEX api_key_newest ON api_key (tenant, created_at DESC);

-- Credentials issued before not_before are rejected. tenant and project are '*' for all; neither can have that name.
CREATE TABLE credential_cutoff (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    not_before timestamptz NOT NULL,
    PRIMARY KEY (tenant, project, user_id)
);

-- One row per model call. cost_known distinguishes calls without a price from calls that cost nothing.
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
    ts timestamptz NOT NULL DEFAULT now(),
    cost_known boolean NOT NULL DEFAULT true
);
CREATE INDEX usage_event_of_turn ON usage_event (turn_id);
CREATE INDEX usage_event_of_conversation ON usage_event (conversation_id);
-- Retention asks for old ones of all tenants.
CREATE INDEX usage_event_by_time ON usage_event USING brin (ts);

-- Totals of deleted rows of usage_event, without texts and ids of conversations. A trigger adds to them in the
-- transaction that deletes the rows, whether a person, the retention or an operator requested it.
CREATE TABLE usage_total (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    day date NOT NULL,
    model text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    calls bigint NOT NULL,
    unpriced_calls bigint NOT NULL,
    estimated_calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    PRIMARY KEY (tenant, day, project, user_id, model, role)
);
