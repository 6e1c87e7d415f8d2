-- Of all tables: ids are text in C order. Bodies are JSON as text, because jsonb rejects U+0000 and changes the bytes
-- that a hash covers. Columns that every commit changes are in no index, so that such an update stays on its page
-- (HOT).

-- touched_at is when its person last named, archived or judged it: retention counts that as activity, the order of the
-- list does not.
CREATE TABLE conversation (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    bundle_id text,
    title text NOT NULL DEFAULT '',
    state text NOT NULL DEFAULT 'idle' CHECK (state IN ('idle', 'queued', 'running', 'waiting', 'error')),
    archived boolean NOT NULL DEFAULT false,
    fence bigint NOT NULL DEFAULT 0,
    next_seq bigint NOT NULL DEFAULT 1,
    inbox_seq bigint NOT NULL DEFAULT 0,
    last_hash text COLLATE "C" NOT NULL DEFAULT repeat('0', 64),
    event_cursor text COLLATE "C" NOT NULL DEFAULT '0-0',
    created_at timestamptz NOT NULL DEFAULT now(),
    last_activity_at timestamptz NOT NULL DEFAULT now(),
    touched_at timestamptz
) WITH (fillfactor = 80);
CREATE INDEX conversation_newest ON conversation (tenant, project, user_id, last_activity_at DESC, id DESC);
-- Retention asks for old ones of all tenants.
CREATE INDEX conversation_by_activity ON conversation (last_activity_at);
