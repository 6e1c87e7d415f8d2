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


-- Conversations with feedback, the latest judged first. Runs with the rights of its caller, as feedback_totals does.
CREATE OR REPLACE FUNCTION judged_conversations(
    p_user text, p_from timestamptz, p_to timestamptz, p_before timestamptz, p_before_id text, p_limit integer
) RETURNS TABLE (conversation_id text, user_id text, title text, last_judged_at timestamptz,
               turns bigint, ok bigint, not_ok bigint, neutral bigint, unrated bigint,
               machine_ok bigint, machine_not_ok bigint, machine_neutral bigint, machine_confidence double precision)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT f.conversation_id, f.user_id, c.title, max(f.ts), count(DISTINCT f.turn_id),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'neutral'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction IS NULL),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'neutral'),
           avg(f.confidence) FILTER (WHERE f.origin = 'machine')
      FROM feedback f JOIN conversation c ON c.id = f.conversation_id
     WHERE f.tenant = NULLIF(current_setting('app.tenant', true), '')
       AND f.project = NULLIF(current_setting('app.project', true), '')
       AND (p_user IS NULL OR f.user_id = p_user)
       AND f.ts >= p_from AND f.ts < p_to
     GROUP BY f.conversation_id, f.user_id, c.title
    HAVING p_before IS NULL OR (max(f.ts), f.conversation_id) < (p_before, p_before_id)
     ORDER BY max(f.ts) DESC, f.conversation_id DESC LIMIT p_limit
$$;

REVOKE ALL ON FUNCTION judged_conversations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION judged_conversations TO everturn_ingress, everturn_dispatch;


-- Totals of feedback of everyone in the project of the transaction. The ingress decides who may ask: admins.
CREATE OR REPLACE FUNCTION project_feedback_totals(p_from timestamptz, p_to timestamptz)
RETURNS TABLE (conversations bigint, turns bigint, ok bigint, not_ok bigint, neutral bigint, unrated bigint,
               machine_ok bigint, machine_not_ok bigint, machine_neutral bigint, machine_confidence double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM feedback_totals(NULL, p_from, p_to)
$$;

REVOKE ALL ON FUNCTION project_feedback_totals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION project_feedback_totals TO everturn_ingress;


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
