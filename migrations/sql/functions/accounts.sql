-- One key by its id, revoked or not, and the day of its last use. The day is written at most once a day, so most calls
-- only read.
CREATE OR REPLACE FUNCTION find_api_key(p_id text) RETURNS SETOF api_key
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE api_key SET last_used_on = (now() AT TIME ZONE 'UTC')::date
     WHERE id = p_id AND revoked_at IS NULL AND last_used_on IS DISTINCT FROM (now() AT TIME ZONE 'UTC')::date;
    RETURN QUERY SELECT * FROM api_key WHERE id = p_id;
END
$$;

REVOKE ALL ON FUNCTION find_api_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_api_key TO everturn_ingress;


-- Credentials of this person issued before this time are rejected.
CREATE OR REPLACE FUNCTION find_credential_cutoff(p_tenant text, p_project text, p_user text) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT max(not_before) FROM credential_cutoff
     WHERE user_id = p_user AND tenant IN (p_tenant, '*') AND project IN (p_project, '*')
$$;

REVOKE ALL ON FUNCTION find_credential_cutoff FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_credential_cutoff TO everturn_ingress;


-- Adds deleted rows of usage_event to the totals. The rows of totals are locked in one order, so that two erasures
-- cannot deadlock.
CREATE OR REPLACE FUNCTION add_usage_totals() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO usage_total AS t
    SELECT d.tenant, d.project, d.user_id, (d.ts AT TIME ZONE 'UTC')::date, d.model, d.role, count(*),
           count(*) FILTER (WHERE NOT d.cost_known), count(*) FILTER (WHERE d.estimated), sum(d.input_tokens),
           sum(d.output_tokens), sum(d.cache_read_tokens), sum(d.cache_write_tokens), sum(d.cost_usd)
      FROM deleted d GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 4, 2, 3, 5, 6
    ON CONFLICT (tenant, day, project, user_id, model, role) DO UPDATE SET
        calls = t.calls + EXCLUDED.calls,
        unpriced_calls = t.unpriced_calls + EXCLUDED.unpriced_calls,
        estimated_calls = t.estimated_calls + EXCLUDED.estimated_calls,
        input_tokens = t.input_tokens + EXCLUDED.input_tokens,
        output_tokens = t.output_tokens + EXCLUDED.output_tokens,
        cache_read_tokens = t.cache_read_tokens + EXCLUDED.cache_read_tokens,
        cache_write_tokens = t.cache_write_tokens + EXCLUDED.cache_write_tokens,
        cost_usd = t.cost_usd + EXCLUDED.cost_usd;
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION add_usage_totals FROM PUBLIC;
