-- What each role may do with tables, column by column. Nobody updates blocks, and only erasure, a function of
-- everturn_dispatch, deletes them. Each function's file says who may call it.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC;

GRANT SELECT, INSERT ON conversation, turn, artifact, signal, idempotency TO everturn_ingress;
GRANT UPDATE (inbox_seq, state, title, archived, last_activity_at, touched_at) ON conversation TO everturn_ingress;
GRANT UPDATE (payload, state, promoted_to) ON signal TO everturn_ingress;
GRANT UPDATE (request_hash, conversation_id, response, expires_at) ON idempotency TO everturn_ingress;
GRANT SELECT ON approval, block, source TO everturn_ingress;
GRANT SELECT, INSERT, DELETE ON feedback, forgotten_memory TO everturn_ingress;
GRANT UPDATE (reaction, text, confidence, ts, told) ON feedback TO everturn_ingress;
GRANT UPDATE (forgotten_at) ON forgotten_memory TO everturn_ingress;
GRANT SELECT, DELETE ON user_memory TO everturn_ingress;

GRANT SELECT ON conversation, signal, feedback, forgotten_memory TO everturn_worker;
GRANT UPDATE (state, next_seq, last_hash, event_cursor, title, last_activity_at) ON conversation TO everturn_worker;
GRANT SELECT, INSERT ON turn, block, artifact, approval, source, tool_effect, usage_event TO everturn_worker;
GRANT UPDATE (status, attempt, outcome, usage, error, ended_at, announced_at, indexed_at) ON turn TO everturn_worker;
GRANT UPDATE (state, round, promoted_to) ON signal TO everturn_worker;
GRANT UPDATE (state, settled_at) ON approval TO everturn_worker;
GRANT UPDATE (title, objective_relevance, published_time_iso, favicon_url, mime, snippet, text_chars, text, used)
    ON source TO everturn_worker;
GRANT UPDATE (state, reply) ON tool_effect TO everturn_worker;
GRANT INSERT, UPDATE (told) ON feedback TO everturn_worker;
GRANT SELECT, INSERT, DELETE ON snippet TO everturn_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON user_memory TO everturn_worker;

GRANT SELECT, DELETE ON conversation, turn, block, artifact, signal, approval, source, feedback, snippet, tool_effect,
    usage_event, idempotency TO everturn_dispatch;
GRANT SELECT, INSERT, UPDATE, DELETE ON lease, usage_total TO everturn_dispatch;
GRANT UPDATE (fence, state, next_seq, last_hash) ON conversation TO everturn_dispatch;
GRANT UPDATE (status, attempt, started_at, first_seq, doorbell_at, rings, index_due_at, index_tries, leased_s)
    ON turn TO everturn_dispatch;
GRANT UPDATE (state, signal_id, settled_at) ON approval TO everturn_dispatch;
GRANT UPDATE (verdict, revoked_at) ON artifact TO everturn_dispatch;
-- Copies of forks.
GRANT INSERT ON block, source TO everturn_dispatch;
-- SELECT ... FOR UPDATE needs it.
GRANT UPDATE ON idempotency TO everturn_dispatch;
GRANT SELECT ON retention_limit TO everturn_dispatch;
GRANT SELECT, INSERT ON api_key, credential_cutoff TO everturn_dispatch;
GRANT UPDATE (revoked_at, last_used_on) ON api_key TO everturn_dispatch;
GRANT UPDATE (not_before) ON credential_cutoff TO everturn_dispatch;
