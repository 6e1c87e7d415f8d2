-- Ends waits whose time is up, at most 200 approvals a call, by database time: the approval becomes expired and the turn
-- goes back to the queue, with a doorbell so old that it is due at once. A conversation that somebody has locked is left
-- for the next time. An approval of a turn that runs waits until that turn is parked.
CREATE FUNCTION expire_approvals() RETURNS integer
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
