-- The queued turns without a lease, and by how much their tenant and their user would exceed their limits if they ran.
-- A user is one name in one tenant, in all projects. extra_held is the number of extra leases of the turn's group: the
-- turns of one tenant on one lane.
CREATE OR REPLACE FUNCTION rank_waiting(p_user_max integer, p_tenant_max integer)
RETURNS TABLE (conversation_id text, lane text, since timestamptz, tenant_over bigint, user_over bigint,
               of_user bigint, extra_held bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH running AS (
        SELECT t.tenant, t.user_id, t.lane, l.extra
          FROM turn t LEFT JOIN lease l ON l.conversation_id = t.conversation_id
         WHERE t.status = 'running'
    ), of_tenant AS (
        SELECT r.tenant, count(*) AS turns FROM running r GROUP BY r.tenant
    ), of_user AS (
        SELECT r.tenant, r.user_id, count(*) AS turns FROM running r GROUP BY r.tenant, r.user_id
    ), of_group AS (
        SELECT r.tenant, r.lane, count(*) AS turns FROM running r WHERE r.extra GROUP BY r.tenant, r.lane
    )
    SELECT q.conversation_id, q.lane, q.created_at,
           GREATEST(0, COALESCE(of_tenant.turns, 0) + 1 - p_tenant_max),
           GREATEST(0, COALESCE(of_user.turns, 0) + 1 - p_user_max),
           COALESCE(of_user.turns, 0), COALESCE(of_group.turns, 0)
      FROM turn q
      LEFT JOIN of_tenant ON of_tenant.tenant = q.tenant
      LEFT JOIN of_user ON of_user.tenant = q.tenant AND of_user.user_id = q.user_id
      LEFT JOIN of_group ON of_group.tenant = q.tenant AND of_group.lane = q.lane
     WHERE q.status = 'queued' AND NOT EXISTS (
        SELECT FROM lease l WHERE l.conversation_id = q.conversation_id AND l.expires_at > clock_timestamp())
$$;

REVOKE ALL ON FUNCTION rank_waiting FROM PUBLIC;
