-- The conversation whose queued turn may take an extra slot now, the one with the highest priority first; null if none
-- may. p_slots and p_extra are the ordinary and the extra slots of all workers. Only users without a running turn are
-- eligible; with p_lent, when turns that make no progress hold ordinary slots, all users below their limit. A group
-- (the turns of a tenant on a lane) may hold no more extra slots than are still free, so a late group still finds some
-- as long as fewer groups than there are extra slots hold any.
CREATE OR REPLACE FUNCTION find_extra_turn(
    p_conversation text, p_user_max integer, p_tenant_max integer, p_slots integer, p_extra integer, p_lent boolean
) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH beyond AS (
        SELECT GREATEST(0, count(*) - p_slots) AS turns FROM turn t WHERE t.status = 'running'
    )
    SELECT w.conversation_id
      FROM rank_waiting(p_user_max, p_tenant_max) w, beyond
     WHERE (p_conversation IS NULL OR w.conversation_id = p_conversation)
       AND w.user_over = 0 AND (p_lent OR w.of_user = 0)
       AND LEAST(w.extra_held, beyond.turns) < p_extra - beyond.turns
     ORDER BY w.of_user, w.tenant_over, array_position(ARRAY['privileged', 'paid', 'registered', 'anonymous'], w.lane),
              w.since, w.conversation_id
     LIMIT 1
$$;

REVOKE ALL ON FUNCTION find_extra_turn FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_extra_turn TO everturn_worker;
