-- Erases conversations at rest in which nothing happened for so long, the oldest first, each as its owner would. Names
-- the owner of each, so that its objects can be looked up in that name. Locked ones are left for the next time.
CREATE FUNCTION erase_expired(p_age interval, p_limit integer)
RETURNS TABLE (conversation_id text, tenant text, project text, user_id text, object_keys text[], removed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_due conversation;
    v_erased record;
BEGIN
    FOR v_due IN
        SELECT c.* FROM conversation c
         WHERE c.last_activity_at < clock_timestamp() - p_age AND c.state IN ('idle', 'error')
           AND NOT EXISTS (SELECT FROM turn t WHERE t.conversation_id = c.id
                           AND (t.status IN ('queued', 'running') OR t.announced_at IS NULL))
           AND NOT EXISTS (SELECT FROM signal s WHERE s.conversation_id = c.id AND s.state = 'accepted')
         ORDER BY c.last_activity_at LIMIT p_limit
           FOR UPDATE OF c SKIP LOCKED
    LOOP
        PERFORM set_config('app.tenant', v_due.tenant, true), set_config('app.project', v_due.project, true),
                set_config('app.user_id', v_due.user_id, true);
        SELECT e.object_keys AS keys, (SELECT sum(n) FROM unnest(e.removed) AS n)::bigint AS count INTO v_erased
          FROM erase_conversation(v_due.id) AS e;
        RETURN QUERY SELECT v_due.id, v_due.tenant, v_due.project, v_due.user_id, v_erased.keys, v_erased.count;
    END LOOP;
    PERFORM set_config('app.tenant', '', true), set_config('app.project', '', true), set_config('app.user_id', '', true);
END
$$;
