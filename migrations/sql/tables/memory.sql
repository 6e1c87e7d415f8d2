CREATE EXTENSION IF NOT EXISTS vector;

-- What memory search finds: the embedded texts of turns. No foreign key: the indexer locks its turn's row while it
-- writes, and an erasure deletes turns first. `words` are what a search by words compares. `embedding` is empty if the
-- encoder was unreachable, and PLAIN keeps it in the row: an exact search reads it from every row of a person.
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
    embedding vector(384) STORAGE PLAIN,
    ts timestamptz NOT NULL
);
CREATE INDEX snippet_of_person ON snippet (tenant, project, user_id, conversation_id);
CREATE INDEX snippet_of_turn ON snippet (conversation_id, turn_id);
CREATE INDEX snippet_words ON snippet USING gin (words);
CREATE INDEX snippet_nearest ON snippet USING hnsw (embedding vector_ip_ops);

-- What a person wants remembered for good. The id is computed from the normalized text: the same statement is one row.
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
CREATE INDEX user_memory_newest ON user_memory (tenant, project, user_id, updated_at DESC, id DESC);

-- What a person deleted: a turn that began before may not write it again. The id `*` stands for everything. Times are
-- the database's, as turn.started_at is; rows older than any running turn can be are deleted with the next one.
CREATE TABLE forgotten_memory (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    forgotten_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, project, user_id, id)
);
