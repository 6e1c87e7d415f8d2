-- Blocks are never updated, and only erasure deletes them. No foreign key: append_blocks and append_fork_blocks, the
-- only ways to insert, update the conversation's row first. ts and ts_first are texts, because the hash covers them.
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
-- A worker loads a conversation starting at its last summary.
CREATE INDEX block_range_summary ON block (conversation_id, seq) WHERE type = 'conv.range.summary';
-- Any later turn may ask for a plan by its id alone.
CREATE INDEX block_plan ON block (conversation_id, seq) WHERE type = 'react.plan';

-- The source pool of a conversation: a number keeps its address for ever. `text` is the whole fetched text, of
-- text_chars characters; the pool is read with snippets only, so that no long text is decompressed for it.
CREATE TABLE source (
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    sid integer NOT NULL CHECK (sid > 0),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    key text NOT NULL,
    title text NOT NULL,
    url text NOT NULL,
    source_type text NOT NULL CHECK (source_type IN ('web', 'file', 'attachment', 'manual')),
    objective_relevance double precision,
    published_time_iso text,
    favicon_url text,
    mime text NOT NULL DEFAULT '',
    snippet text NOT NULL DEFAULT '',
    text_chars integer NOT NULL DEFAULT 0 CHECK (text_chars >= 0),
    text text NOT NULL DEFAULT '',
    used boolean NOT NULL DEFAULT false,
    PRIMARY KEY (conversation_id, sid),
    UNIQUE (conversation_id, key)
);
