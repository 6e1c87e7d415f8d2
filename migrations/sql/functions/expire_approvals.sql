-- Expires approvals whose deadline has passed by database time, at most 200 per call, and puts their turns back into
-- the queue, with a doorbell so old that it is due at once. Skips conversations that another transaction has locked
-- until the next call. The approval of a running turn is left until that turn is parked.
CREATE OR REPLACE FUNCTION expire_approvals() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_due record;
    v_count integer := 0;
BEGIN
    FOR v_due IN
        SELECT a.id, a.conversation_id, a.turn_id FROM approval a JOIN turn t ON t.id = a.turn_id
         WHERE a.state = 'pending' AND a.expires_at <= clock_timestamp() AND t.status IN ('waiting', 'queued')
         ORDER BY a.conversation_id, a.id LIMIT 200
    LOOP
        PERFORM FROM conversation c WHERE c.id = v_due.conversation_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        UPDATE approval a SET state = 'expired', settled_at = clock_timestamp()
          FROM turn t
         WHERE a.id = v_due.id AND a.state = 'pending' AND t.id = a.turn_id AND t.status IN ('waiting', 'queued');
        CONTINUE WHEN NOT FOUND;
        v_count := v_count + 1;
        UPDATE turn t SET status = 'queued', doorbell_at = clock_timestamp() - interval '1 min', rings = 0
         WHERE t.id = v_due.turn_id AND t.status = 'waiting';
        IF FOUND THEN
            UPDATE conversation c SET state = 'queued' WHERE c.id = v_due.conversation_id;
        END IF;
    END LOOP;
    RETURN v_count;
END
$$;

REVOKE ALL ON FUNCTION expire_approvals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION expire_approvals TO everturn_worker;
