-- Puts the waiting turn of a conversation of the principal of the transaction back into the queue as if its doorbell
-- had just been rung. Returns whether there was one. Locks the conversation's row first, as park_turn does.
CREATE OR REPLACE FUNCTION wake_turn(p_conversation text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM conversation c
      WHERE c.id = p_conversation
        AND c.tenant = NULLIF(current_setting('app.tenant', true), '')
        AND c.project = NULLIF(current_setting('app.project', true), '')
        AND c.user_id = NULLIF(current_setting('app.user_id', true), '')
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE turn t SET status = 'queued', doorbell_at = clock_timestamp(), rings = 1
     WHERE t.conversation_id = p_conversation AND t.status = 'waiting';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE conversation c SET state = 'queued' WHERE c.id = p_conversation;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION wake_turn FROM PUBLIC;
GRANT EXECUTE ON FUNCTION wake_turn TO everturn_ingress;
