-- Renews all leases of one worker, and returns those it still holds with the inbox_seq of their conversations. Rows are
-- locked in the order of their ids. A row that another transaction has locked is not waited for: an unexpired lease is
-- still held, and the next renewal comes long before it expires. As it was not renewed, its inbox_seq is -1.
CREATE OR REPLACE FUNCTION renew_leases(p_owner text, p_conversations text[], p_fences bigint[], p_ttl interval)
RETURNS TABLE (conversation_id text, inbox_seq bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH mine AS (
        SELECT l.conversation_id, l.expires_at
          FROM unnest(p_conversations, p_fences) AS held (id, fence)
          JOIN lease l ON l.conversation_id = held.id AND l.fence = held.fence
         WHERE l.owner = p_owner
    ), free AS (
        SELECT l.conversation_id
          FROM unnest(p_conversations, p_fences) AS held (id, fence)
          JOIN lease l ON l.conversation_id = held.id AND l.fence = held.fence
         WHERE l.owner = p_owner
         ORDER BY l.conversation_id
           FOR UPDATE OF l SKIP LOCKED
    ), renewed AS (
        UPDATE lease l SET expires_at = clock_timestamp() + p_ttl
          FROM free WHERE l.conversation_id = free.conversation_id
        RETURNING l.conversation_id
    )
    SELECT c.id, CASE WHEN renewed.conversation_id IS NULL THEN -1 ELSE c.inbox_seq END
      FROM mine
      JOIN conversation c ON c.id = mine.conversation_id
      LEFT JOIN renewed ON renewed.conversation_id = mine.conversation_id
     WHERE renewed.conversation_id IS NOT NULL OR mine.expires_at > clock_timestamp()
$$;

REVOKE ALL ON FUNCTION renew_leases FROM PUBLIC;
GRANT EXECUTE ON FUNCTION renew_leases TO everturn_worker;
