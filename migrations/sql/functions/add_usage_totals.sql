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
