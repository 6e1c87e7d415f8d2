-- Conversations without activity for p_age, and for at least as long as the operator's retention_limit, the oldest
-- first, without those of p_skip.
CREATE OR REPLACE FUNCTION due_conversations(p_age interval, p_skip text[], p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.id FROM conversation c
     WHERE c.last_activity_at < (SELECT find_expiry(p_age)) AND c.id <> ALL (p_skip)
       AND is_expired(c, (SELECT find_expiry(p_age)))
     ORDER BY c.last_activity_at LIMIT p_limit
$$;

REVOKE ALL ON FUNCTION due_conversations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_conversations TO everturn_worker;
