-- Like claim_conversation, within the limits of running turns. A queued turn whose tenant or user exceeds a limit is
-- not claimed while another waiting turn exceeds the limits by less: deferred_to is then that turn's conversation, and
-- deferred_lane the lane of the turn that was not claimed. The turn that exceeds the limits least may always be
-- claimed, so no free slot stays empty while a turn waits. For an ordinary slot, turns of dead workers and ended turns
-- that were not announced are claimed regardless of the limits. With p_extra_slot, only a queued turn that
-- find_extra_turn would choose is claimed. Claims of one tenant are serialized: two workers must not both take the last
-- place of a user.
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
    -- Taken before the row of the conversation, which claim_conversation locks: no transaction that holds the row waits
    -- for this lock.
    PERFORM pg_advisory_xact_lock(hashtextextended('running:' || v_tenant, 0));
    IF p_extra_slot THEN
        IF find_extra_turn(p_conversation, p_user_max, p_tenant_max, p_slots, p_extra, p_lent) IS NULL THEN
            RETURN;
        END IF;
    ELSE
        -- Counted for this turn only; the other waiting turns are ranked only if it exceeds a limit.
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


-- Takes the lease of a conversation that has work and no valid lease. Returns no row if there is nothing to take.
-- The fence grows in the conversation's row, under the same row lock that every append takes.
CREATE OR REPLACE FUNCTION claim_conversation(p_conversation text, p_owner text, p_ttl interval)
RETURNS TABLE (tenant text, project text, user_id text, roles text[], fence bigint, turn_id text, attempt integer,
               next_seq bigint, last_hash text, event_cursor text, inbox_seq bigint, unannounced text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_turn turn;
    v_conversation conversation;
    v_unannounced text[];
BEGIN
    -- Checked without a lock first: most calls that find nothing to claim end here.
    IF EXISTS (SELECT FROM lease l WHERE l.conversation_id = p_conversation AND l.expires_at > clock_timestamp()) THEN
        RETURN;
    END IF;
    PERFORM FROM conversation c WHERE c.id = p_conversation FOR NO KEY UPDATE;
    IF NOT FOUND OR EXISTS (
        SELECT FROM lease l WHERE l.conversation_id = p_conversation AND l.expires_at > clock_timestamp()) THEN
        RETURN;
    END IF;

    SELECT t.* INTO v_turn FROM turn t WHERE t.conversation_id = p_conversation AND t.status IN ('queued', 'running');
    SELECT array_agg(t.id ORDER BY t.ordinal) INTO v_unannounced FROM turn t
     WHERE t.conversation_id = p_conversation AND t.announced_at IS NULL
       AND t.status IN ('completed', 'failed', 'cancelled');
    IF v_turn.id IS NULL AND v_unannounced IS NULL THEN
        DELETE FROM lease l WHERE l.conversation_id = p_conversation;
        RETURN;
    END IF;

    UPDATE conversation c
       SET fence = c.fence + 1, state = CASE WHEN v_turn.id IS NULL THEN c.state ELSE 'running' END
     WHERE c.id = p_conversation RETURNING c.* INTO v_conversation;
    INSERT INTO lease (conversation_id, tenant, project, user_id, owner, fence, expires_at)
    VALUES (p_conversation, v_conversation.tenant, v_conversation.project, v_conversation.user_id, p_owner,
            v_conversation.fence, clock_timestamp() + p_ttl)
    ON CONFLICT (conversation_id) DO UPDATE
       SET owner = EXCLUDED.owner, fence = EXCLUDED.fence, expires_at = EXCLUDED.expires_at;
    IF v_turn.id IS NOT NULL THEN
        UPDATE turn t
           SET status = 'running', attempt = t.attempt + (t.status = 'running')::integer, rings = 0,
               started_at = COALESCE(t.started_at, clock_timestamp()), doorbell_at = clock_timestamp(),
               first_seq = COALESCE(t.first_seq, v_conversation.next_seq)
         WHERE t.id = v_turn.id RETURNING t.* INTO v_turn;
    END IF;

    RETURN QUERY SELECT v_conversation.tenant, v_conversation.project, v_conversation.user_id, v_turn.roles,
        v_conversation.fence, v_turn.id, COALESCE(v_turn.attempt, 0), v_conversation.next_seq,
        v_conversation.last_hash, v_conversation.event_cursor, v_conversation.inbox_seq,
        COALESCE(v_unannounced, '{}');
END
$$;

REVOKE ALL ON FUNCTION claim_conversation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_conversation TO everturn_worker;


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


-- The conversation whose queued turn may take an extra slot now, the one with the highest priority; null if none may.
-- If p_conversation is given, only that one is considered. p_slots and p_extra are the ordinary and the extra slots of
-- all workers. Only users without a running turn are eligible; with p_lent, when turns that make no progress hold
-- ordinary slots, all users below their limit. A group (the turns of a tenant on a lane) gets another extra slot only
-- while it holds fewer than are free, so some are left for a group that comes later, as long as fewer groups hold any
-- than there are extra slots.
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


-- Renews all leases of one worker, and returns those it still holds with the inbox_seq of their conversations. Rows are
-- locked in the order of their ids. A row that another transaction has locked is not waited for: an unexpired lease is
-- still held, and the next renewal comes long before it expires. As it was not renewed, its inbox_seq is -1.
CREATE OR REPLACE FUNCTION renew_leases(p_owner text, p_conversations text[], p_fences bigint[], p_ttl interval)
RETURNS TABLE (conversation_id text, inbox_seq bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH mine AS (
        SELECT l.conversation_id, l.expires_at
          FROM unnest(p_conversations, p_fences) AS held (id, fence)
          JOIN lease l ON l.conversation_id = held.id AND l.fence = held.fence
         WHERE l.owner = p_owner
    ), free AS (
        SELECT l.conversation_id
          FROM unnest(p_conversations, p_fences) AS held (id, fence)
          JOIN lease l ON l.conversation_id = held.id AND l.fence = held.fence
         WHERE l.owner = p_owner
         ORDER BY l.conversation_id
           FOR UPDATE OF l SKIP LOCKED
    ), renewed AS (
        UPDATE lease l SET expires_at = clock_timestamp() + p_ttl
          FROM free WHERE l.conversation_id = free.conversation_id
        RETURNING l.conversation_id
    )
    SELECT c.id, CASE WHEN renewed.conversation_id IS NULL THEN -1 ELSE c.inbox_seq END
      FROM mine
      JOIN conversation c ON c.id = mine.conversation_id
      LEFT JOIN renewed ON renewed.conversation_id = mine.conversation_id
     WHERE renewed.conversation_id IS NOT NULL OR mine.expires_at > clock_timestamp()
$$;

REVOKE ALL ON FUNCTION renew_leases FROM PUBLIC;
GRANT EXECUTE ON FUNCTION renew_leases TO everturn_worker;


-- Releases a lease, if it is held. With p_requeue the open turn goes back to the queue as if its doorbell had just been
-- rung. Returns whether the conversation has work, so that its doorbell must be rung: those rung during the lease were
-- in vain. An accept waits for the row that is locked here, so none is missed. False if another worker has claimed the
-- conversation since.
CREATE OR REPLACE FUNCTION release_lease(p_conversation text, p_owner text, p_fence bigint, p_requeue boolean)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM conversation c WHERE c.id = p_conversation AND c.fence = p_fence FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM lease l WHERE l.conversation_id = p_conversation AND l.owner = p_owner AND l.fence = p_fence;
    IF FOUND AND p_requeue THEN
        UPDATE turn t SET status = 'queued', doorbell_at = clock_timestamp(), rings = 1
         WHERE t.conversation_id = p_conversation AND t.status = 'running';
        IF FOUND THEN
            UPDATE conversation c SET state = 'queued' WHERE c.id = p_conversation;
        END IF;
    END IF;
    RETURN EXISTS (
        SELECT FROM turn t
         WHERE t.conversation_id = p_conversation
           AND (t.status IN ('queued', 'running') OR t.announced_at IS NULL AND t.status <> 'waiting'));
END
$$;

REVOKE ALL ON FUNCTION release_lease FROM PUBLIC;
GRANT EXECUTE ON FUNCTION release_lease TO everturn_worker;


-- Records that the end of a turn was announced, with the last event id that clients can have, in one call. Returns
-- false if the fence is stale. Runs as the worker, under the worker's policies.
CREATE OR REPLACE FUNCTION save_announced(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_turn text, p_fence bigint, p_cursor text
) RETURNS boolean
LANGUAGE plpgsql SECURITY INVOKER AS $$
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);
    UPDATE conversation SET event_cursor = p_cursor WHERE id = p_conversation AND fence = p_fence;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE turn SET announced_at = clock_timestamp() WHERE id = p_turn AND conversation_id = p_conversation;
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION save_announced FROM PUBLIC;
GRANT EXECUTE ON FUNCTION save_announced TO everturn_worker;


-- save_announced and then release_lease, in one call, for a turn that has ended. With a stale fence: false if the end
-- is announced already, as after a call whose answer was lost, otherwise null. Runs as the worker, under the worker's
-- policies.
CREATE OR REPLACE FUNCTION release_announced(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_turn text, p_owner text, p_fence bigint,
    p_cursor text
) RETURNS boolean
LANGUAGE plpgsql SECURITY INVOKER AS $$
BEGIN
    IF save_announced(p_tenant, p_project, p_user_id, p_conversation, p_turn, p_fence, p_cursor) THEN
        RETURN release_lease(p_conversation, p_owner, p_fence, false);
    END IF;
    RETURN (SELECT false FROM turn t WHERE t.id = p_turn AND t.announced_at IS NOT NULL);
END
$$;

REVOKE ALL ON FUNCTION release_announced FROM PUBLIC;
GRANT EXECUTE ON FUNCTION release_announced TO everturn_worker;


-- Adds the time of a lease that ends to the turn that runs under it. A claim that replaces an expired lease gives the
-- row a new fence, which ends one lease and begins another. A worker that could not renew may have worked until the
-- lease expired, so that moment ends it.
CREATE OR REPLACE FUNCTION count_leased_time() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE turn t
       SET leased_s = t.leased_s
           + GREATEST(0, EXTRACT(epoch FROM LEAST(OLD.expires_at, clock_timestamp()) - OLD.claimed_at))
     WHERE t.conversation_id = OLD.conversation_id AND t.status = 'running';
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    NEW.claimed_at := clock_timestamp();
    RETURN NEW;
END
$$;

REVOKE ALL ON FUNCTION count_leased_time FROM PUBLIC;
