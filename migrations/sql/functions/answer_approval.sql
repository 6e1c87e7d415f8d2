-- Saves a person's answer, p_state, which the signal p_signal carries. The first answer counts, and wakes the turn that
-- waits for it. Returns the turn and the verdict: `answered`, `repeated` (answered_by gave the same answer before),
-- `settled` (something else happened first, see present_state) or `late` (the deadline has passed, though
-- expire_approvals has not run yet). Returns no row if the principal of the transaction has no such approval in this
-- conversation.
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
