-- How many turns wait: in total, of one tenant on one lane, and how many tenants have waiting turns.
CREATE OR REPLACE FUNCTION queue_depth(p_tenant text, p_lane text)
RETURNS TABLE (waiting bigint, of_tenant bigint, tenants bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*), count(*) FILTER (WHERE t.tenant = p_tenant AND t.lane = p_lane), count(DISTINCT t.tenant)
      FROM turn t WHERE t.status = 'queued'
$$;

REVOKE ALL ON FUNCTION queue_depth FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_depth TO everturn_ingress;
