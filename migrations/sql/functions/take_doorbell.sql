-- Whether the doorbell of a queued turn may be rung now: its tenant has fewer than p_share turns on the lane, and no
-- other turn of the tenant waits for a place there, because next_of_tenant fills free places in order. Marks the turn
-- as rung.
CREATE OR REPLACE FUNCTION take_doorbell(p_turn text, p_share integer) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE turn t SET doorbell_at = clock_timestamp(), rings = 1
     WHERE t.id = p_turn AND t.status = 'queued' AND t.doorbell_at IS NULL AND p_share > (
        SELECT count(*) FROM (
            SELECT FROM turn o
             WHERE o.tenant = t.tenant AND o.lane = t.lane AND o.status = 'queued' AND o.doorbell_at IS NOT NULL
             LIMIT p_share) AS on_lane)
       AND NOT EXISTS (
        SELECT FROM turn o
         WHERE o.tenant = t.tenant AND o.lane = t.lane AND o.status = 'queued' AND o.doorbell_at IS NULL AND o.id <> t.id)
    RETURNING true
$$;

REVOKE ALL ON FUNCTION take_doorbell FROM PUBLIC;
GRANT EXECUTE ON FUNCTION take_doorbell TO everturn_ingress, everturn_worker;
