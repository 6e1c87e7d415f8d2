-- Whether one more turn of the tenant may wait on the lane. Accepts of one tenant on one lane are serialized until
-- their transactions end, so that no two take the last place.
CREATE OR REPLACE FUNCTION take_place(p_tenant text, p_lane text, p_max integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('queue:' || p_lane || ':' || p_tenant, 0));
    RETURN p_max > (
        SELECT count(*) FROM (
            SELECT FROM turn t WHERE t.tenant = p_tenant AND t.lane = p_lane AND t.status = 'queued' LIMIT p_max
        ) AS waiting);
END
$$;

REVOKE ALL ON FUNCTION take_place FROM PUBLIC;
GRANT EXECUTE ON FUNCTION take_place TO everturn_ingress;
