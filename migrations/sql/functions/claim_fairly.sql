-- Like claim_conversation, within the limits of running turns. A queued turn whose tenant or user exceeds a limit is
-- not claimed while another turn waits that exceeds it less: deferred_to then names that one. The turn that exceeds the
-- limits least may always be claimed, so no free slot stays empty while a turn waits. Turns of dead workers and ended
-- turns that were not announced are claimed regardless of the limits. With p_extra_slot the slot is an extra one
-- (find_extra_turn), and only a turn that may have it is claimed.
-- Claims of one tenant are serialized: two workers must not both take the last place of a user.
CREATE OR REPLACE FUNCTION claim_fairly(
    p_conversation text, p_owner text, p_ttl interval, p_user_max integer, p_tenant_max integer,
    p_slots integer, p_extra integer, p_extra_slot boolean, p_lent boolean
) RETURNS TABLE (tenant text, project text, user_id text, roles text[], fence bigint, turn_id text, attempt integer,
                 next_seq bigint, last_hash text, event_cursor text, inbox_seq bigint, unannounced text[],
                 deferred_to text, deferred_lane text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := (SELECT c.tenant FROM conversation c WHERE c.id = p_conversation);
    v_own record;
    v_better text;
BEGIN
    IF EXISTS (SELECT FROM lease l WHERE l.conversation_id = p_conversation AND l.expires_at > clock_timestamp()) THEN
        RETURN;
    END IF;
    -- Before the row of the conversation, which claim_conversation locks: nobody waits for this who holds that one.
    PERFORM pg_advisory_xact_lock(hashtextextended('running:' || v_tenant, 0));
    IF p_extra_slot THEN
        IF find_extra_turn(p_conversation, p_user_max, p_tenant_max, p_slots, p_extra, p_lent) IS NULL THEN
            RETURN;
        END IF;
    ELSE
        -- Counted for this turn alone: what waits besides is looked at only where it is over a bound.
        SELECT GREATEST(0, (SELECT count(*) FROM turn o WHERE o.status = 'running' AND o.tenant = t.tenant)
                           + 1 - p_tenant_max) AS tenant_over,
               GREATEST(0, (SELECT count(*) FROM turn o
                             WHERE o.status = 'running' AND o.tenant = t.tenant AND o.user_id = t.user_id)
                           + 1 - p_user_max) AS user_over,
               t.lane
          INTO v_own FROM turn t WHERE t.conversation_id = p_conversation AND t.status = 'queued';
        IF FOUND AND (v_own.tenant_over > 0 OR v_own.user_over > 0) THEN
            SELECT w.conversation_id INTO v_better FROM rank_waiting(p_user_max, p_tenant_max) w
             WHERE (w.tenant_over, w.user_over) < (v_own.tenant_over, v_own.user_over)
             ORDER BY w.tenant_over, w.user_over, w.lane <> v_own.lane, w.since, w.conversation_id
             LIMIT 1;
            IF FOUND THEN
                deferred_to := v_better;
                deferred_lane := v_own.lane;
                RETURN NEXT;
                RETURN;
            END IF;
        END IF;
    END IF;
    RETURN QUERY SELECT c.*, NULL::text, NULL::text FROM claim_conversation(p_conversation, p_owner, p_ttl) c;
    UPDATE lease l SET extra = p_extra_slot
     WHERE l.conversation_id = p_conversation AND l.owner = p_owner AND l.extra <> p_extra_slot;
END
$$;

REVOKE ALL ON FUNCTION claim_fairly FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_fairly TO everturn_worker;
