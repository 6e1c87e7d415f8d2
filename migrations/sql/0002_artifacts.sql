-- A removed row takes its ref out of the workspace. Trees are read by prefix of the ref, which needs an order of bytes.
ALTER TABLE artifact ADD COLUMN removed boolean NOT NULL DEFAULT false;
CREATE INDEX artifact_tree ON artifact (conversation_id, ref COLLATE "C", created_at DESC, id DESC);
CREATE INDEX artifact_of_workspace ON artifact (conversation_id, turn_id DESC, ref COLLATE "C", created_at DESC, id DESC)
    WHERE kind = 'file';

-- Long results of tools are stored whole; their row keeps the object and lets it be erased.
ALTER TABLE artifact DROP CONSTRAINT artifact_kind_check;
ALTER TABLE artifact ADD CONSTRAINT artifact_kind_check CHECK (kind IN ('attachment', 'file', 'output', 'result'));
