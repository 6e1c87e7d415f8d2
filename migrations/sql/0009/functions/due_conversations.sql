-- Conversations in which nothing happened for so long, and for as long as the operator says, the oldest first, without those of p_skip.
CREATE OR REPLACE FUNCTION due_conversations(p_age interval, p_skip text[], p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.id FROM conversation c
     WHERE c.last_activity_at < (SELECT find_expiry(p_age)) AND c.id <> ALL (p_skip)
       AND is_expired(c, (SELECT find_expiry(p_age)))
     ORDER BY c.last_activity_at LIMIT p_limit
$$;
