-- After how many days without activity the operator lets conversations go: workers may ask for more days and never for
-- less, and for nothing where there are none. Only the role that migrates writes it, so a worker's role alone erases
-- nobody's conversation before its time.
CREATE TABLE retention_limit (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    min_days integer CHECK (min_days >= 1)
);
INSERT INTO retention_limit (min_days) VALUES (NULL);
ALTER TABLE retention_limit ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention_limit FORCE ROW LEVEL SECURITY;
CREATE POLICY retention_limit_owner ON retention_limit TO everturn_owner USING (true) WITH CHECK (true);
CREATE POLICY retention_limit_dispatch ON retention_limit FOR SELECT TO everturn_dispatch USING (true);
GRANT SELECT ON retention_limit TO everturn_dispatch;

-- The time before which a conversation is expired for this age. Fails where the operator keeps conversations for ever.
CREATE FUNCTION find_expiry(p_age interval) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    v_days integer;
BEGIN
    SELECT l.min_days INTO v_days FROM retention_limit l;
    IF v_days IS NULL THEN
        RAISE EXCEPTION 'nothing may expire in this database: run the migration with RETENTION_DAYS set as for the workers'
            USING ERRCODE = '57E01';
    END IF;
    RETURN clock_timestamp() - greatest(p_age, make_interval(days => v_days));
END
$$;
