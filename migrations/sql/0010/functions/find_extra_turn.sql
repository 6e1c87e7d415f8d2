-- The conversation whose queued turn may take an extra slot now, the one with the best right to it first; null when none
-- may. p_slots and p_extra are the ordinary and the extra slots of all workers. Only users without a running turn may;
-- with p_lent, when ordinary slots are held by turns that make no progress, all users below their bound. A group (the
-- turns of a tenant on a lane) may hold no more extra slots than are left free: so some are left whoever has come before,
-- as long as fewer groups than there are extra slots hold any.
CREATE FUNCTION find_extra_turn(
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
