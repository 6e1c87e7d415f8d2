-- How many turns are ahead of those that wait in these conversations, up to p_most each; no row for conversations
-- without a waiting turn. Ahead of a turn on its lane are those rung before it. Ahead of a turn beyond its tenant's
-- share are all on the lane, and those of its tenant that came before it; turns of other tenants may still overtake it.
CREATE OR REPLACE FUNCTION queue_positions(
    p_conversations text[], p_tenants text[], p_projects text[], p_users text[], p_most integer
) RETURNS TABLE (conversation_id text, turn_id text, ahead bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.conversation_id, t.id, CASE WHEN t.rung_at IS NOT NULL THEN (
               SELECT count(*) FROM (
                   SELECT FROM turn o
                    WHERE o.status = 'queued' AND o.lane = t.lane AND o.rung_at IS NOT NULL
                      AND (o.rung_at, o.id) < (t.rung_at, t.id)
                    LIMIT p_most) AS rung_before)
           ELSE (
               SELECT count(*) FROM (
                   (SELECT FROM turn o
                     WHERE o.status = 'queued' AND o.lane = t.lane AND o.rung_at IS NOT NULL
                     LIMIT p_most)
                    UNION ALL
                   (SELECT FROM turn o
                     WHERE o.status = 'queued' AND o.tenant = t.tenant AND o.lane = t.lane AND o.doorbell_at IS NULL
                       AND (o.created_at, o.id) < (t.created_at, t.id)
                     LIMIT p_most)
                    LIMIT p_most) AS before)
           END
      FROM unnest(p_conversations, p_tenants, p_projects, p_users) AS asked (conversation_id, tenant, project, user_id)
      JOIN turn t ON t.conversation_id = asked.conversation_id AND t.status = 'queued' AND t.tenant = asked.tenant
                 AND t.project = asked.project AND t.user_id = asked.user_id
$$;

REVOKE ALL ON FUNCTION queue_positions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_positions TO everturn_ingress;
