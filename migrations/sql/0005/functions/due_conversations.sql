-- Conversations in which nothing happened for so long, the oldest first, without those of p_skip.
CREATE FUNCTION due_conversations(p_age interval, p_skip text[], p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.id FROM conversation c
     WHERE c.last_activity_at < clock_timestamp() - p_age AND c.id <> ALL (p_skip)
       AND is_expired(c, clock_timestamp() - p_age)
     ORDER BY c.last_activity_at LIMIT p_limit
$$;
