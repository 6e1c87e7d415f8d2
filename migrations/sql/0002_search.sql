-- What memory search finds: the embedded texts of turns, and what a person wants remembered for good.
CREATE EXTENSION IF NOT EXISTS vector;

-- The queue of the indexer: ended turns without indexed_at, each due again some time after it was last taken.
ALTER TABLE turn ADD COLUMN indexed_at timestamptz,
                 ADD COLUMN index_due_at timestamptz NOT NULL DEFAULT now(),
                 ADD COLUMN index_tries integer NOT NULL DEFAULT 0;
CREATE INDEX turn_unindexed ON turn (index_due_at)
    WHERE indexed_at IS NULL AND status IN ('completed', 'failed', 'cancelled');
CREATE INDEX turn_by_time ON turn (tenant, project, user_id, created_at);

-- No foreign key: who writes snippets holds their turn's row, and an erasure removes turns first. words are what the
-- lexical part compares, each marked with its owner; embedding is empty where the encoder was out of reach, and never
-- moved out of the row: an exact search reads it from every row of a person.
CREATE TABLE snippet (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL CHECK (target IN ('user', 'assistant', 'summary', 'notes', 'attachment')),
    ref text COLLATE "C" NOT NULL,
    text text NOT NULL,
    words text[] COLLATE "C" NOT NULL,
    encoder text COLLATE "C" NOT NULL,
    embedding vector(384),
    ts timestamptz NOT NULL
);
ALTER TABLE snippet ALTER COLUMN embedding SET STORAGE PLAIN;
CREATE INDEX snippet_of_person ON snippet (tenant, project, user_id, conversation_id);
CREATE INDEX snippet_of_turn ON snippet (conversation_id, turn_id);
CREATE INDEX snippet_words ON snippet USING gin (words);
CREATE INDEX snippet_nearest ON snippet USING hnsw (embedding vector_ip_ops);

-- id follows from the folded text: the same thing said twice is one row.
CREATE TABLE user_memory (
    id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    text text NOT NULL,
    labels text[] NOT NULL,
    pinned boolean NOT NULL,
    confidence double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    salience double precision NOT NULL CHECK (salience BETWEEN 0 AND 1),
    encoder text COLLATE "C" NOT NULL,
    embedding vector(384),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, project, user_id, id)
);

GRANT UPDATE (indexed_at) ON turn TO everturn_worker;
GRANT UPDATE (index_due_at, index_tries) ON turn TO everturn_dispatch;
GRANT SELECT, INSERT, DELETE ON snippet TO everturn_worker;
GRANT SELECT, DELETE ON snippet TO everturn_dispatch;
GRANT SELECT, INSERT, UPDATE, DELETE ON user_memory TO everturn_worker;
