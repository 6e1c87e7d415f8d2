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
