-- Releases a lease. With p_requeue the open turn goes back to the queue as if its doorbell had just been rung.
CREATE OR REPLACE FUNCTION release_lease(p_conversation text, p_owner text, p_fence bigint, p_requeue boolean)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM conversation c WHERE c.id = p_conversation AND c.fence = p_fence FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM lease l WHERE l.conversation_id = p_conversation AND l.owner = p_owner AND l.fence = p_fence;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_requeue THEN
        UPDATE turn t SET status = 'queued', doorbell_at = clock_timestamp(), rings = 1
         WHERE t.conversation_id = p_conversation AND t.status = 'running';
        IF FOUND THEN
            UPDATE conversation c SET state = 'queued' WHERE c.id = p_conversation;
        END IF;
    END IF;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION release_lease FROM PUBLIC;
GRANT EXECUTE ON FUNCTION release_lease TO everturn_worker;
