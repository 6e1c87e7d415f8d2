-- Saves a person's answer, p_state, which the signal p_signal carries. The first answer counts, and wakes the turn that
-- waits for it. Returns the turn and the verdict: `answered`, `repeated` (answered_by gave the same answer before),
-- `settled` (something else happened first, see present_state), `late` (the deadline has passed, though
-- expire_approvals has not run yet) or `unconnected` (the question asks for an account, and none was connected since).
-- Returns no row if the principal of the transaction has no such approval in this conversation.
CREATE OR REPLACE FUNCTION answer_approval(p_conversation text, p_approval text, p_state text, p_signal text)
RETURNS TABLE (turn_id text, lane text, verdict text, present_state text, answered_by text, woken boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_approval approval;
BEGIN
    PERFORM FROM conversation c
      WHERE c.id = p_conversation
        AND c.tenant = NULLIF(current_setting('app.tenant', true), '')
        AND c.project = NULLIF(current_setting('app.project', true), '')
        AND c.user_id = NULLIF(current_setting('app.user_id', true), '')
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT a.* INTO v_approval FROM approval a
     WHERE a.id = p_approval AND a.conversation_id = p_conversation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    turn_id := v_approval.turn_id;
    SELECT t.lane INTO lane FROM turn t WHERE t.id = v_approval.turn_id;
    present_state := v_approval.state;
    answered_by := v_approval.signal_id;
    woken := false;
    IF v_approval.state = p_state THEN
        verdict := 'repeated';
    ELSIF v_approval.state <> 'pending' THEN
        verdict := 'settled';
    ELSIF v_approval.expires_at <= clock_timestamp() THEN
        verdict := 'late';
    ELSIF p_state = 'approved' AND EXISTS (
        SELECT FROM mcp_request r LEFT JOIN mcp_connection c USING (tenant, project, user_id, bundle_id, server)
         WHERE r.approval_id = p_approval AND r.answered_at IS NULL AND r.expires_at > clock_timestamp()
           AND (c.connected_at IS NULL OR c.connected_at < v_approval.requested_at)) THEN
        verdict := 'unconnected';
    ELSE
        UPDATE approval a SET state = p_state, signal_id = p_signal, settled_at = clock_timestamp()
         WHERE a.id = p_approval;
        verdict := 'answered';
        present_state := p_state;
        answered_by := p_signal;
        woken := wake_turn(p_conversation);
    END IF;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION answer_approval FROM PUBLIC;
GRANT EXECUTE ON FUNCTION answer_approval TO everturn_ingress;


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


-- Releases the lease and lets the running turn wait for a person, or for a run of a program; only for a person the
-- conversation is shown as waiting. Returns false, with the lease still held, if the lease was lost, no approval is
-- pending and no call waits for a run, or the turn is needed now: by a signal, by a run that has ended, or by one without
-- a task, whose start has to be repeated. The sender of a signal locks the same row: the signal comes either before, and
-- is seen here, or after, and wakes the turn. Waiting costs no attempt and resets the counter: a turn that could be
-- parked has not killed its worker. Returns true again for a turn that already waits under this fence: nobody has
-- claimed it since, so only the first reply was lost.
CREATE OR REPLACE FUNCTION park_turn(p_conversation text, p_owner text, p_fence bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_turn text;
    v_asks boolean;
BEGIN
    PERFORM FROM conversation c WHERE c.id = p_conversation AND c.fence = p_fence FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM turn t WHERE t.conversation_id = p_conversation AND t.status = 'waiting') THEN
        RETURN true;
    END IF;
    SELECT t.id INTO v_turn FROM turn t WHERE t.conversation_id = p_conversation AND t.status = 'running';
    v_asks := EXISTS (SELECT FROM approval a WHERE a.turn_id = v_turn AND a.state = 'pending');
    IF NOT (v_asks OR EXISTS (SELECT FROM detached_run r LEFT JOIN tool_effect e USING (turn_id, call_id)
                               WHERE r.turn_id = v_turn AND r.ended_as = '' AND r.task <> ''
                                 AND COALESCE(e.state, 'intended') = 'intended'))
       OR EXISTS (SELECT FROM detached_run r JOIN tool_effect e USING (turn_id, call_id)
                   WHERE r.turn_id = v_turn AND (r.ended_as <> '' OR r.task = '') AND e.state = 'intended')
       OR EXISTS (SELECT FROM signal s WHERE s.turn_id = v_turn AND s.state = 'accepted'
                     AND s.kind IN ('steer', 'cancel', 'approve', 'deny')) THEN
        RETURN false;
    END IF;
    DELETE FROM lease l WHERE l.conversation_id = p_conversation AND l.owner = p_owner AND l.fence = p_fence;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE turn t SET status = 'waiting', attempt = 0, doorbell_at = NULL WHERE t.id = v_turn;
    UPDATE conversation c SET state = CASE WHEN v_asks THEN 'waiting' ELSE 'running' END WHERE c.id = p_conversation;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION park_turn FROM PUBLIC;
GRANT EXECUTE ON FUNCTION park_turn TO everturn_worker;


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
