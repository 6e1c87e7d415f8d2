-- What each role may do, column by column. Nobody updates blocks; only erasure, which is a dispatch function, deletes.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC;

GRANT SELECT, INSERT ON conversation TO everturn_ingress;
GRANT UPDATE (inbox_seq, state, title, archived, last_activity_at) ON conversation TO everturn_ingress;
GRANT SELECT, INSERT ON turn, artifact, signal TO everturn_ingress;
GRANT UPDATE (payload, state) ON signal TO everturn_ingress;
GRANT SELECT ON block TO everturn_ingress;
GRANT SELECT, INSERT, DELETE ON feedback TO everturn_ingress;
GRANT UPDATE (reaction, text, confidence, ts, told) ON feedback TO everturn_ingress;
GRANT SELECT, INSERT ON idempotency TO everturn_ingress;
GRANT UPDATE (request_hash, conversation_id, response, expires_at) ON idempotency TO everturn_ingress;

GRANT SELECT ON conversation TO everturn_worker;
GRANT UPDATE (state, next_seq, last_hash, event_cursor, title, last_activity_at) ON conversation TO everturn_worker;
GRANT SELECT, INSERT ON turn, block, artifact, tool_effect, usage_event TO everturn_worker;
GRANT UPDATE (status, attempt, outcome, usage, error, ended_at, announced_at) ON turn TO everturn_worker;
GRANT UPDATE (state) ON tool_effect TO everturn_worker;
GRANT SELECT ON signal, feedback TO everturn_worker;
GRANT UPDATE (state, round, promoted_to) ON signal TO everturn_worker;
GRANT UPDATE (told) ON feedback TO everturn_worker;

GRANT SELECT, DELETE ON conversation, turn, block, artifact, signal, feedback, tool_effect, usage_event, idempotency
    TO everturn_dispatch;
GRANT SELECT, INSERT, UPDATE, DELETE ON lease TO everturn_dispatch;
GRANT UPDATE (fence, state) ON conversation TO everturn_dispatch;
GRANT UPDATE (status, attempt, started_at, first_seq, doorbell_at, rings) ON turn TO everturn_dispatch;
