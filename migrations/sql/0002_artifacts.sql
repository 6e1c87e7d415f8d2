-- A removed row takes its ref out of the workspace. Trees are read by prefix of the ref, which needs an order of bytes.
ALTER TABLE artifact ADD COLUMN removed boolean NOT NULL DEFAULT false;
CREATE INDEX artifact_tree ON artifact (conversation_id, ref COLLATE "C", id DESC);
CREATE INDEX artifact_of_workspace ON artifact (conversation_id, turn_id DESC, ref COLLATE "C", id DESC)
    WHERE kind = 'file';
