-- turn_id is the turn that first named the file; for a file of a signal, that turn may never have been opened.
-- The kind `result` is a long result of a tool, stored whole, so that it can be read back and erased.
-- A removed row takes its ref out of the workspace. revoked_at is set when a later scan found the file infected: the
-- object is deleted, the row and its verdict stay. Only an operator (the migrating role, as everturn_dispatch) may do
-- that, for all rows of one object at once.
CREATE TABLE artifact (
    id text COLLATE "C" PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    ref text NOT NULL,
    rn text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('attachment', 'file', 'output', 'result')),
    filename text NOT NULL,
    path text NOT NULL,
    mime text NOT NULL,
    size bigint NOT NULL CHECK (size >= 0),
    sha256 text COLLATE "C" NOT NULL,
    object_key text COLLATE "C" NOT NULL,
    visibility text NOT NULL CHECK (visibility IN ('internal', 'external')),
    verdict text NOT NULL,
    description text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    removed boolean NOT NULL DEFAULT false,
    revoked_at timestamptz
);
CREATE INDEX artifact_by_ref ON artifact (conversation_id, ref, id DESC);
-- Trees are read by prefix of the ref, which needs the order of bytes.
CREATE INDEX artifact_tree ON artifact (conversation_id, ref COLLATE "C", created_at DESC, id DESC);
CREATE INDEX artifact_of_workspace ON artifact (conversation_id, turn_id DESC, ref COLLATE "C", created_at DESC, id DESC)
    WHERE kind = 'file';
-- Forks share objects: every erasure asks whether a row of any conversation still names one.
CREATE INDEX artifact_by_object ON artifact (object_key);
