-- The source pool of a conversation: a number stays with its address for ever. text is the whole fetched text, of
-- text_chars characters; the pool is read with snippets only, so that no long text is unpacked for it.
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

GRANT SELECT ON source TO everturn_ingress;
GRANT SELECT, INSERT ON source TO everturn_worker;
GRANT UPDATE (title, objective_relevance, published_time_iso, favicon_url, mime, snippet, text_chars, text, used)
    ON source TO everturn_worker;
GRANT SELECT, DELETE ON source TO everturn_dispatch;
