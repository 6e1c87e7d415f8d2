-- When its person named, archived or judged it: retention counts that as activity, the order of the list doesn't.
ALTER TABLE conversation ADD COLUMN touched_at timestamptz;
GRANT UPDATE (touched_at) ON conversation TO everturn_ingress;

-- Whether nothing happened to a conversation since then, and nothing of it is still to be done.
CREATE FUNCTION is_expired(c conversation, p_before timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT c.last_activity_at < p_before AND COALESCE(c.touched_at < p_before, true) AND c.state IN ('idle', 'error')
       AND NOT EXISTS (SELECT FROM turn t WHERE t.conversation_id = c.id
                       AND (t.status NOT IN ('completed', 'failed', 'cancelled') OR t.announced_at IS NULL))
       AND NOT EXISTS (SELECT FROM signal s WHERE s.conversation_id = c.id AND s.state = 'accepted')
$$;
