-- Fills the free places of a tenant on each lane with its oldest turns that wait without a doorbell, and marks them as
-- rung. Calls are serialized, also with accepts of the tenant (postgres_inbox.py): a turn that just found no place is not
-- visible before its commit, and nobody else would ring for it.
CREATE OR REPLACE FUNCTION next_of_tenant(p_conversation text, p_share integer)
RETURNS TABLE (conversation_id text, lane text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := (SELECT c.tenant FROM conversation c WHERE c.id = p_conversation);
    v_lane text;
BEGIN
    -- Always in this order, so that no two wait for each other; who accepts holds only one of them.
    FOREACH v_lane IN ARRAY ARRAY['anonymous', 'paid', 'privileged', 'registered'] LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('queue:' || v_lane || ':' || v_tenant, 0));
    END LOOP;
    -- A statement of its own, which sees what those before accepted and rang.
    RETURN QUERY
    WITH waiting AS (
        SELECT w.id
          FROM unnest(ARRAY['privileged', 'paid', 'registered', 'anonymous']) AS lanes (lane),
               conversation c,
               LATERAL (
                SELECT t.id FROM turn t
                 WHERE t.tenant = c.tenant AND t.lane = lanes.lane AND t.status = 'queued' AND t.doorbell_at IS NULL
                 ORDER BY t.created_at
                 LIMIT GREATEST(0, p_share - (
                    SELECT count(*) FROM turn o
                     WHERE o.tenant = c.tenant AND o.lane = lanes.lane AND o.status = 'queued'
                       AND o.doorbell_at IS NOT NULL))) AS w
         WHERE c.id = p_conversation
    ), locked AS (
        SELECT t.id FROM turn t
         WHERE t.id IN (SELECT waiting.id FROM waiting) AND t.doorbell_at IS NULL AND t.status = 'queued'
         ORDER BY t.id LIMIT 200
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE turn t SET doorbell_at = clock_timestamp(), rings = 1
      FROM locked WHERE t.id = locked.id
    RETURNING t.conversation_id, t.lane;
END
$$;

REVOKE ALL ON FUNCTION next_of_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION next_of_tenant TO everturn_worker;
