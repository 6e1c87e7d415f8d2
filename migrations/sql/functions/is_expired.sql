-- Whether a conversation had no activity since then and has no remaining work.
CREATE OR REPLACE FUNCTION is_expired(c conversation, p_before timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT c.last_activity_at < p_before AND COALESCE(c.touched_at < p_before, true) AND c.state IN ('idle', 'error')
       AND NOT EXISTS (SELECT FROM turn t WHERE t.conversation_id = c.id
                       AND (t.status NOT IN ('completed', 'failed', 'cancelled') OR t.announced_at IS NULL))
       AND NOT EXISTS (SELECT FROM signal s WHERE s.conversation_id = c.id AND s.state = 'accepted')
$$;
