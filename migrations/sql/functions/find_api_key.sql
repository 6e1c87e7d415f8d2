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
