-- How many turns wait: all, those of one tenant on one lane, and of how many tenants they are.
CREATE FUNCTION queue_depth(p_tenant text, p_lane text) RETURNS TABLE (waiting bigint, of_tenant bigint, tenants bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*), count(*) FILTER (WHERE t.tenant = p_tenant AND t.lane = p_lane), count(DISTINCT t.tenant)
      FROM turn t WHERE t.status = 'queued'
$$;
