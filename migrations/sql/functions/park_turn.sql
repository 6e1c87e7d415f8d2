-- Releases the lease and lets the running turn wait for a person. Returns false, with the lease still held, if the
-- lease was lost, no approval is pending, or a signal needs the turn now. The sender of a signal locks the same row:
-- the signal comes either before, and is seen here, or after, and wakes the turn. Waiting costs no attempt and resets
-- the counter: a turn that could be parked has not killed its worker. Returns true again for a turn that already waits
-- under this fence: nobody has claimed it since, so only the first reply was lost.
CREATE OR REPLACE FUNCTION park_turn(p_conversation text, p_owner text, p_fence bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_turn text;
BEGIN
    PERFORM FROM conversation c WHERE c.id = p_conversation AND c.fence = p_fence FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM turn t WHERE t.conversation_id = p_conversation AND t.status = 'waiting') THEN
        RETURN true;
    END IF;
    SELECT t.id INTO v_turn FROM turn t WHERE t.conversation_id = p_conversation AND t.status = 'running';
    IF NOT EXISTS (SELECT FROM approval a WHERE a.turn_id = v_turn AND a.state = 'pending')
       OR EXISTS (SELECT FROM signal s WHERE s.turn_id = v_turn AND s.state = 'accepted'
                     AND s.kind IN ('steer', 'cancel', 'approve', 'deny')) THEN
        RETURN false;
    END IF;
    DELETE FROM lease l WHERE l.conversation_id = p_conversation AND l.owner = p_owner AND l.fence = p_fence;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE turn t SET status = 'waiting', attempt = 0, doorbell_at = NULL WHERE t.id = v_turn;
    UPDATE conversation c SET state = 'waiting' WHERE c.id = p_conversation;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION park_turn FROM PUBLIC;
GRANT EXECUTE ON FUNCTION park_turn TO everturn_worker;
