-- How many turns wait on each lane, and for how many seconds the oldest has waited. Totals of all tenants.
CREATE OR REPLACE FUNCTION queue_lanes() RETURNS TABLE (lane text, waiting bigint, oldest_s double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.lane, count(*), extract(epoch FROM clock_timestamp() - min(t.created_at))::double precision
      FROM turn t WHERE t.status = 'queued' GROUP BY t.lane
$$;

REVOKE ALL ON FUNCTION queue_lanes FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_lanes TO everturn_ingress;
