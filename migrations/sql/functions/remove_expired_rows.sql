-- Deletes expired idempotency rows, and, if p_age is given, older rows of the ledgers: usage by its time, effects by
-- the time of their turn, which its id begins with. At most p_limit of each table.
CREATE OR REPLACE FUNCTION remove_expired_rows(p_age interval, p_limit integer)
RETURNS TABLE (store text, removed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_before constant timestamptz := CASE WHEN p_age IS NOT NULL THEN find_expiry(p_age) END;
    v_ms constant text := lpad(to_hex((extract(epoch FROM v_before) * 1000)::bigint), 12, '0');
BEGIN
    DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM idempotency i WHERE i.expires_at < clock_timestamp() LIMIT p_limit FOR UPDATE SKIP LOCKED));
    store := 'idempotency';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
    IF p_age IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM usage_event WHERE ctid = ANY (ARRAY(
        SELECT u.ctid FROM usage_event u WHERE u.ts < v_before LIMIT p_limit));
    store := 'usage_event';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
    DELETE FROM tool_effect WHERE ctid = ANY (ARRAY(
        SELECT e.ctid FROM tool_effect e JOIN turn t ON t.id = e.turn_id
         WHERE e.turn_id < 'turn_' || left(v_ms, 8) || '-' || right(v_ms, 4) AND t.ended_at < v_before LIMIT p_limit));
    store := 'tool_effect';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION remove_expired_rows FROM PUBLIC;
GRANT EXECUTE ON FUNCTION remove_expired_rows TO everturn_worker;
