-- The source pool of a conversation: a number stays with its address for ever. text is the whole fetched text.
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
    text text NOT NULL DEFAULT '',
    used boolean NOT NULL DEFAULT false,
    PRIMARY KEY (conversation_id, sid),
    UNIQUE (conversation_id, key)
);
