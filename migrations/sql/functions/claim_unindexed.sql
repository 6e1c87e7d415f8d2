-- Claims ended turns that are not indexed yet, the longest due first. A claimed turn is due again after 150 s, then 300,
-- 600 and so on, in case its worker dies: longer than an attempt may take (JOB_TIMEOUT_S of chat_proc.memory.indexer).
-- `tries` includes this attempt.
CREATE OR REPLACE FUNCTION claim_unindexed(p_limit integer)
RETURNS TABLE (tenant text, project text, user_id text, conversation_id text, turn_id text, tries integer)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH due AS (
        SELECT t.id FROM turn t
         WHERE t.indexed_at IS NULL AND t.status IN ('completed', 'failed', 'cancelled')
           AND t.index_due_at <= clock_timestamp()
         ORDER BY t.index_due_at LIMIT p_limit
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE turn t
       SET index_tries = t.index_tries + 1,
           index_due_at = clock_timestamp() + LEAST(3600, 150 * 2 ^ LEAST(t.index_tries, 5)) * interval '1 s'
      FROM due WHERE t.id = due.id
    RETURNING t.tenant, t.project, t.user_id, t.conversation_id, t.id, t.index_tries
$$;

REVOKE ALL ON FUNCTION claim_unindexed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_unindexed TO everturn_worker;
