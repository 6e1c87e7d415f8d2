-- Takes the lease of a conversation that has work and no valid lease. Returns no row if there is nothing to take.
-- The fence grows in the conversation's row, under the same row lock that every append takes.
CREATE OR REPLACE FUNCTION claim_conversation(p_conversation text, p_owner text, p_ttl interval)
RETURNS TABLE (tenant text, project text, user_id text, roles text[], fence bigint, turn_id text, attempt integer,
               next_seq bigint, last_hash text, event_cursor text, inbox_seq bigint, unannounced text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_turn turn;
    v_conversation conversation;
    v_unannounced text[];
BEGIN
    -- A look without a lock: most calls that find nothing to take end here.
    IF EXISTS (SELECT FROM lease l WHERE l.conversation_id = p_conversation AND l.expires_at > clock_timestamp()) THEN
        RETURN;
    END IF;
    PERFORM FROM conversation c WHERE c.id = p_conversation FOR NO KEY UPDATE;
    IF NOT FOUND OR EXISTS (
        SELECT FROM lease l WHERE l.conversation_id = p_conversation AND l.expires_at > clock_timestamp()) THEN
        RETURN;
    END IF;

    SELECT t.* INTO v_turn FROM turn t WHERE t.conversation_id = p_conversation AND t.status IN ('queued', 'running');
    SELECT array_agg(t.id ORDER BY t.ordinal) INTO v_unannounced FROM turn t
     WHERE t.conversation_id = p_conversation AND t.announced_at IS NULL
       AND t.status IN ('completed', 'failed', 'cancelled');
    IF v_turn.id IS NULL AND v_unannounced IS NULL THEN
        DELETE FROM lease l WHERE l.conversation_id = p_conversation;
        RETURN;
    END IF;

    UPDATE conversation c
       SET fence = c.fence + 1, state = CASE WHEN v_turn.id IS NULL THEN c.state ELSE 'running' END
     WHERE c.id = p_conversation RETURNING c.* INTO v_conversation;
    INSERT INTO lease (conversation_id, tenant, project, user_id, owner, fence, expires_at)
    VALUES (p_conversation, v_conversation.tenant, v_conversation.project, v_conversation.user_id, p_owner,
            v_conversation.fence, clock_timestamp() + p_ttl)
    ON CONFLICT (conversation_id) DO UPDATE
       SET owner = EXCLUDED.owner, fence = EXCLUDED.fence, expires_at = EXCLUDED.expires_at;
    IF v_turn.id IS NOT NULL THEN
        UPDATE turn t
           SET status = 'running', attempt = t.attempt + (t.status = 'running')::integer, rings = 0,
               started_at = COALESCE(t.started_at, clock_timestamp()), doorbell_at = clock_timestamp(),
               first_seq = COALESCE(t.first_seq, v_conversation.next_seq)
         WHERE t.id = v_turn.id RETURNING t.* INTO v_turn;
    END IF;

    RETURN QUERY SELECT v_conversation.tenant, v_conversation.project, v_conversation.user_id, v_turn.roles,
        v_conversation.fence, v_turn.id, COALESCE(v_turn.attempt, 0), v_conversation.next_seq,
        v_conversation.last_hash, v_conversation.event_cursor, v_conversation.inbox_seq,
        COALESCE(v_unannounced, '{}');
END
$$;

REVOKE ALL ON FUNCTION claim_conversation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_conversation TO everturn_worker;
