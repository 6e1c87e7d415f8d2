-- The time before which a conversation is expired for this age. Fails if the operator keeps conversations for ever.
CREATE OR REPLACE FUNCTION find_expiry(p_age interval) RETURNS timestamptz
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
