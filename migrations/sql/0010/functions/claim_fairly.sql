-- As claim_conversation, within the bounds of running turns. A queued turn whose tenant or user is over a bound is not
-- taken while another one waits that is less so: deferred_to names it then, and nothing was claimed. As the turn that is
-- least over may always be taken, a free slot is never left empty while anything waits. Turns of dead workers, and ends
-- that nobody announced, are taken whatever the bounds. With p_extra_slot the slot is an extra one (find_extra_turn),
-- and nothing is claimed that may not have it.
-- Claims of one tenant come one after another: two workers must not both take a user's last place.
CREATE FUNCTION claim_fairly(
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
