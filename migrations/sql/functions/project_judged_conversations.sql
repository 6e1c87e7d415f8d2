-- Conversations with feedback of everyone in the project of the transaction, without titles, which are their owners'
-- words. The ingress decides who may ask: admins.
CREATE OR REPLACE FUNCTION project_judged_conversations(
    p_from timestamptz, p_to timestamptz, p_before timestamptz, p_before_id text, p_limit integer
) RETURNS TABLE (conversation_id text, user_id text, title text, last_judged_at timestamptz,
               turns bigint, ok bigint, not_ok bigint, neutral bigint, unrated bigint,
               machine_ok bigint, machine_not_ok bigint, machine_neutral bigint, machine_confidence double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT j.conversation_id, j.user_id, NULL::text, j.last_judged_at, j.turns, j.ok, j.not_ok, j.neutral, j.unrated,
           j.machine_ok, j.machine_not_ok, j.machine_neutral, j.machine_confidence
      FROM judged_conversations(NULL, p_from, p_to, p_before, p_before_id, p_limit) AS j
$$;

REVOKE ALL ON FUNCTION project_judged_conversations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION project_judged_conversations TO everturn_ingress;
