-- A fork shares objects: whether a row of any conversation names one is asked at every erasure.
CREATE INDEX artifact_by_object ON artifact (object_key);

GRANT INSERT ON block, source TO everturn_dispatch;
GRANT UPDATE (next_seq, last_hash) ON conversation TO everturn_dispatch;

-- Retention asks for what is old, in all tenants.
CREATE INDEX conversation_by_activity ON conversation (last_activity_at);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);
CREATE INDEX usage_event_by_time ON usage_event USING brin (ts);
GRANT UPDATE ON idempotency TO everturn_dispatch;
