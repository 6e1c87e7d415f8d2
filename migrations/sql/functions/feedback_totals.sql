-- Totals of feedback. Runs with the rights of its caller: a service sees the rows of its principal only, whatever
-- p_user says; everturn_dispatch sees those of the whole project of the transaction.
CREATE OR REPLACE FUNCTION feedback_totals(p_user text, p_from timestamptz, p_to timestamptz)
RETURNS TABLE (conversations bigint, turns bigint, ok bigint, not_ok bigint, neutral bigint, unrated bigint,
               machine_ok bigint, machine_not_ok bigint, machine_neutral bigint, machine_confidence double precision)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT count(DISTINCT f.conversation_id), count(DISTINCT f.turn_id),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'neutral'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction IS NULL),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'neutral'),
           avg(f.confidence) FILTER (WHERE f.origin = 'machine')
      FROM feedback f
     WHERE f.tenant = NULLIF(current_setting('app.tenant', true), '')
       AND f.project = NULLIF(current_setting('app.project', true), '')
       AND (p_user IS NULL OR f.user_id = p_user)
       AND f.ts >= p_from AND f.ts < p_to
$$;

REVOKE ALL ON FUNCTION feedback_totals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION feedback_totals TO everturn_ingress, everturn_dispatch;
