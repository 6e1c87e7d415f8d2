-- Finds turns that no worker has noticed: queued turns whose doorbell may be lost, waiting ones that have a place now,
-- running ones whose lease expired, ended ones that were not announced. Returns at most 200 and marks them as rung; the
-- next ring follows after 5 s, then 10, 20, 40, and 60 s from then on. Without p_takeovers nothing that has a lease is
-- returned, even an expired one: a sweeper that was itself disconnected cannot tell whose fault it is. Leases of dead
-- workers without remaining work are deleted.
CREATE OR REPLACE FUNCTION due_doorbells(p_share integer, p_takeovers boolean)
RETURNS TABLE (conversation_id text, lane text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH abandoned AS (
        DELETE FROM lease l
         WHERE p_takeovers AND l.expires_at <= clock_timestamp()
           AND NOT EXISTS (
            SELECT FROM turn t
             WHERE t.conversation_id = l.conversation_id
               AND (t.status IN ('queued', 'running') OR t.announced_at IS NULL AND t.status <> 'waiting'))
    ), candidate AS (
        SELECT t.id FROM turn t WHERE t.status = 'queued' AND t.doorbell_at IS NOT NULL
        UNION ALL
        SELECT w.id
          FROM (SELECT t.id, t.tenant, t.lane,
                       row_number() OVER (PARTITION BY t.tenant, t.lane ORDER BY t.created_at) AS place
                  FROM turn t WHERE t.status = 'queued' AND t.doorbell_at IS NULL) AS w
         WHERE w.place <= p_share - (
            SELECT count(*) FROM turn o
             WHERE o.tenant = w.tenant AND o.lane = w.lane AND o.status = 'queued' AND o.doorbell_at IS NOT NULL)
        UNION ALL
        SELECT o.id
          FROM (SELECT t.id, t.conversation_id FROM turn t WHERE t.status = 'running'
                UNION ALL
                SELECT t.id, t.conversation_id FROM turn t
                 WHERE t.announced_at IS NULL AND t.status IN ('completed', 'failed', 'cancelled')) AS o
         WHERE NOT EXISTS (
            SELECT FROM lease l
             WHERE l.conversation_id = o.conversation_id AND (l.expires_at > clock_timestamp() OR NOT p_takeovers))
    ), due AS (
        SELECT t.id FROM turn t
         WHERE t.id IN (SELECT candidate.id FROM candidate)
           AND (t.doorbell_at IS NULL
                OR t.doorbell_at < clock_timestamp() - LEAST(60, 5 * 2 ^ LEAST(GREATEST(t.rings - 1, 0), 4)) * interval '1 s')
         ORDER BY t.id LIMIT 200
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE turn t SET doorbell_at = clock_timestamp(), rings = t.rings + 1
      FROM due WHERE t.id = due.id
    RETURNING t.conversation_id, t.lane
$$;

REVOKE ALL ON FUNCTION due_doorbells FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_doorbells TO everturn_worker;
