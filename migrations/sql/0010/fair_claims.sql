-- An extra lease is one taken beyond the ordinary slots of the workers; how many a group may have depends on what is free.
ALTER TABLE lease ADD COLUMN extra boolean NOT NULL DEFAULT false;
CREATE INDEX turn_running ON turn (tenant, user_id, lane, conversation_id) WHERE status = 'running';
