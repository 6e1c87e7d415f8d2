-- Whether the doorbell of a queued turn may be rung now: its tenant has fewer than p_share turns on the lane, and no
-- other turn of the tenant waits for a place there, because next_of_tenant fills free places in order. Marks the turn
-- as rung.
CREATE OR REPLACE FUNCTION take_doorbell(p_turn text, p_share integer) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE turn t SET doorbell_at = clock_timestamp(), rings = 1
     WHERE t.id = p_turn AND t.status = 'queued' AND t.doorbell_at IS NULL AND p_share > (
        SELECT count(*) FROM (
            SELECT FROM turn o
             WHERE o.tenant = t.tenant AND o.lane = t.lane AND o.status = 'queued' AND o.doorbell_at IS NOT NULL
             LIMIT p_share) AS on_lane)
       AND NOT EXISTS (
        SELECT FROM turn o
         WHERE o.tenant = t.tenant AND o.lane = t.lane AND o.status = 'queued' AND o.doorbell_at IS NULL AND o.id <> t.id)
    RETURNING true
$$;

REVOKE ALL ON FUNCTION take_doorbell FROM PUBLIC;
GRANT EXECUTE ON FUNCTION take_doorbell TO everturn_ingress, everturn_worker;


-- Fills the free places of a tenant on each lane with its oldest turns that wait without a doorbell, and marks them as
-- rung. Calls are serialized, also with accepts of the tenant (enter_queue): a turn that just found no place is not
-- visible before its commit, and nobody else would ring for it.
CREATE OR REPLACE FUNCTION next_of_tenant(p_conversation text, p_share integer)
RETURNS TABLE (conversation_id text, lane text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := (SELECT c.tenant FROM conversation c WHERE c.id = p_conversation);
    v_lane text;
BEGIN
    -- Always in this order, so that two calls never wait for each other. Accepting a turn takes only one of these locks.
    FOREACH v_lane IN ARRAY ARRAY['anonymous', 'paid', 'privileged', 'registered'] LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('queue:' || v_lane || ':' || v_tenant, 0));
    END LOOP;
    -- A statement of its own, which sees what those before accepted and rang.
    RETURN QUERY
    WITH waiting AS (
        SELECT w.id
          FROM unnest(ARRAY['privileged', 'paid', 'registered', 'anonymous']) AS lanes (lane),
               conversation c,
               LATERAL (
                SELECT t.id FROM turn t
                 WHERE t.tenant = c.tenant AND t.lane = lanes.lane AND t.status = 'queued' AND t.doorbell_at IS NULL
                 ORDER BY t.created_at
                 LIMIT GREATEST(0, p_share - (
                    SELECT count(*) FROM turn o
                     WHERE o.tenant = c.tenant AND o.lane = lanes.lane AND o.status = 'queued'
                       AND o.doorbell_at IS NOT NULL))) AS w
         WHERE c.id = p_conversation
    ), locked AS (
        SELECT t.id FROM turn t
         WHERE t.id IN (SELECT waiting.id FROM waiting) AND t.doorbell_at IS NULL AND t.status = 'queued'
         ORDER BY t.id LIMIT 200
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE turn t SET doorbell_at = clock_timestamp(), rings = 1
      FROM locked WHERE t.id = locked.id
    RETURNING t.conversation_id, t.lane;
END
$$;

REVOKE ALL ON FUNCTION next_of_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION next_of_tenant TO everturn_worker;


-- Whether next_of_tenant may find a turn, asked after a claim of this conversation was committed: one waits without a
-- doorbell, or is just being accepted and may have found no place, because it still saw the claimed turn in the queue.
-- A later accept sees that the place is free. Waits for no lock and keeps none: the caller's transaction can last until
-- a slow client has read a large result.
CREATE OR REPLACE FUNCTION may_have_next(p_conversation text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_tenant text := (SELECT c.tenant FROM conversation c WHERE c.id = p_conversation);
    v_is_free boolean := true;
BEGIN
    BEGIN
        SELECT bool_and(pg_try_advisory_xact_lock_shared(hashtextextended('queue:' || lane || ':' || v_tenant, 0)))
          INTO v_is_free
          FROM unnest(ARRAY['anonymous', 'paid', 'privileged', 'registered']) AS lanes (lane);
        -- Releases the locks. The variable keeps its value.
        RAISE SQLSTATE 'EV005';
    EXCEPTION
        WHEN SQLSTATE 'EV005' THEN
            NULL;
    END;
    IF NOT v_is_free THEN
        RETURN true;
    END IF;
    -- A statement of its own, which sees what those accepted that held the locks before.
    RETURN EXISTS (
        SELECT FROM turn t WHERE t.tenant = v_tenant AND t.status = 'queued' AND t.doorbell_at IS NULL);
END
$$;

REVOKE ALL ON FUNCTION may_have_next FROM PUBLIC;
GRANT EXECUTE ON FUNCTION may_have_next TO everturn_worker;


-- Finds turns that no worker has noticed: queued turns whose doorbell may be lost, waiting ones that have a place now,
-- running ones whose lease expired, ended ones that were not announced. Returns at most 200 and marks them as rung; the
-- next ring follows after 5 s, then 10, 20, 40, and 60 s from then on. Without p_takeovers nothing that has a lease is
-- returned, even an expired one: a sweeper that was itself disconnected cannot tell whose fault it is. Leases of dead
-- workers without remaining work are deleted.
CREATE OR REPLACE FUNCTION due_doorbells(p_share integer, p_takeovers boolean)
RETURNS TABLE (conversation_id text, lane text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH abandoned AS (
        DELETE FROM lease l
         WHERE p_takeovers AND l.expires_at <= clock_timestamp()
           AND NOT EXISTS (
            SELECT FROM turn t
             WHERE t.conversation_id = l.conversation_id
               AND (t.status IN ('queued', 'running') OR t.announced_at IS NULL AND t.status <> 'waiting'))
    ), candidate AS (
        SELECT t.id FROM turn t WHERE t.status = 'queued' AND t.doorbell_at IS NOT NULL
        UNION ALL
        SELECT w.id
          FROM (SELECT t.id, t.tenant, t.lane,
                       row_number() OVER (PARTITION BY t.tenant, t.lane ORDER BY t.created_at) AS place
                  FROM turn t WHERE t.status = 'queued' AND t.doorbell_at IS NULL) AS w
         WHERE w.place <= p_share - (
            SELECT count(*) FROM turn o
             WHERE o.tenant = w.tenant AND o.lane = w.lane AND o.status = 'queued' AND o.doorbell_at IS NOT NULL)
        UNION ALL
        SELECT o.id
          FROM (SELECT t.id, t.conversation_id FROM turn t WHERE t.status = 'running'
                UNION ALL
                SELECT t.id, t.conversation_id FROM turn t
                 WHERE t.announced_at IS NULL AND t.status IN ('completed', 'failed', 'cancelled')) AS o
         WHERE NOT EXISTS (
            SELECT FROM lease l
             WHERE l.conversation_id = o.conversation_id AND (l.expires_at > clock_timestamp() OR NOT p_takeovers))
    ), due AS (
        SELECT t.id FROM turn t
         WHERE t.id IN (SELECT candidate.id FROM candidate)
           AND (t.doorbell_at IS NULL
                OR t.doorbell_at < clock_timestamp() - LEAST(60, 5 * 2 ^ LEAST(GREATEST(t.rings - 1, 0), 4)) * interval '1 s')
         ORDER BY t.id LIMIT 200
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE turn t SET doorbell_at = clock_timestamp(), rings = t.rings + 1
      FROM due WHERE t.id = due.id
    RETURNING t.conversation_id, t.lane
$$;

REVOKE ALL ON FUNCTION due_doorbells FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_doorbells TO everturn_worker;


-- Sets turn.rung_at when a turn gets its place on the lane. A trigger, so that every way into the queue does so.
CREATE OR REPLACE FUNCTION note_ring() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR OLD.status <> 'queued' OR OLD.doorbell_at IS NULL THEN
        NEW.rung_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;

REVOKE ALL ON FUNCTION note_ring FROM PUBLIC;


-- How many turns wait: in total, and of one tenant on one lane. `tenants` is always NULL: nothing reads it, and replacing a
-- function in place can't change the type of its result.
CREATE OR REPLACE FUNCTION queue_depth(p_tenant text, p_lane text)
RETURNS TABLE (waiting bigint, of_tenant bigint, tenants bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*), count(*) FILTER (WHERE t.tenant = p_tenant AND t.lane = p_lane), NULL::bigint
      FROM turn t WHERE t.status = 'queued'
$$;

REVOKE ALL ON FUNCTION queue_depth FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_depth TO everturn_ingress;


-- How many turns wait on each lane, and for how many seconds the oldest has waited. Totals of all tenants.
CREATE OR REPLACE FUNCTION queue_lanes() RETURNS TABLE (lane text, waiting bigint, oldest_s double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.lane, count(*), extract(epoch FROM clock_timestamp() - min(t.created_at))::double precision
      FROM turn t WHERE t.status = 'queued' GROUP BY t.lane
$$;

REVOKE ALL ON FUNCTION queue_lanes FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queue_lanes TO everturn_ingress;


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


-- Enters a turn that has just been inserted into the queue. Returns whether its doorbell may be rung now, how many turns
-- are ahead of it (up to p_most), and how many wait, itself included, for the caller to compare with its caps: in total, of
-- the tenant, of the tenant on the lane, and of the user, whose rows the caller sees.
--
-- Until the commit, this blocks all other accepts of the tenant on this lane, and those of all tenants while more than
-- p_total_unlocked turns wait, so that two turns never get the last place of the tenant on the lane, or of the queue. The
-- turns of the tenant on all lanes are counted only when that can matter: at 1,300 waiting turns it takes 5 ms instead of
-- 1. So of_tenant counts only this lane while at most p_tenant_unlocked turns wait.
CREATE OR REPLACE FUNCTION enter_queue(
    p_turn text, p_conversation text, p_tenant text, p_project text, p_user text, p_lane text, p_lanes text[],
    p_share integer, p_total_unlocked bigint, p_tenant_unlocked bigint, p_most integer
) RETURNS TABLE (ring boolean, ahead bigint, waiting bigint, of_tenant bigint, of_tenant_on_lane bigint, of_user bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('queue:' || p_lane || ':' || p_tenant, 0));
    -- Each statement sees what others committed before it.
    SELECT depth.waiting, depth.of_tenant, depth.of_tenant INTO waiting, of_tenant, of_tenant_on_lane
      FROM queue_depth(p_tenant, p_lane) AS depth;
    IF waiting > p_total_unlocked THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('queue', 0));
    END IF;
    IF waiting > LEAST(p_total_unlocked, p_tenant_unlocked) THEN
        SELECT max(depth.waiting), sum(depth.of_tenant), max(depth.of_tenant) FILTER (WHERE lane.name = p_lane)
          INTO waiting, of_tenant, of_tenant_on_lane
          FROM unnest(p_lanes) AS lane (name), queue_depth(p_tenant, lane.name) AS depth;
    END IF;
    SELECT count(*) INTO of_user FROM turn t WHERE t.status = 'queued';
    ring := COALESCE(take_doorbell(p_turn, p_share), false);
    SELECT place.ahead INTO ahead
      FROM queue_positions(ARRAY[p_conversation], ARRAY[p_tenant], ARRAY[p_project], ARRAY[p_user], p_most) AS place;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION enter_queue FROM PUBLIC;
GRANT EXECUTE ON FUNCTION enter_queue TO everturn_ingress;


-- Whether an idempotency key now belongs to this transaction; null if it was used in the last 24 hours. Waits for a
-- concurrent transaction that has claimed it.
CREATE OR REPLACE FUNCTION claim_key(
    p_tenant text, p_project text, p_user_id text, p_route text, p_key text, p_request_hash text, p_conversation text
) RETURNS boolean
LANGUAGE sql SECURITY INVOKER AS $$
    INSERT INTO idempotency AS i (tenant, project, user_id, route, key, request_hash, conversation_id, expires_at)
    VALUES (p_tenant, p_project, p_user_id, p_route, p_key, p_request_hash, p_conversation,
            clock_timestamp() + interval '24 hours')
    ON CONFLICT (tenant, project, user_id, route, key) DO UPDATE
       SET request_hash = EXCLUDED.request_hash, conversation_id = EXCLUDED.conversation_id,
           expires_at = EXCLUDED.expires_at
     WHERE i.expires_at < clock_timestamp()
    RETURNING true
$$;

REVOKE ALL ON FUNCTION claim_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_key TO everturn_ingress;


-- Accepts what opens a turn, a message or an event, in one call: claims the idempotency key, creates the conversation
-- if wanted, inserts the turn and its files, enters the queue, and stores the receipt for repeated requests. Sets the
-- principal of the transaction and runs as the ingress, under its policies.
--
-- `outcome` says what happened, and `receipt` is JSON (turns/inbox.py:Receipt). All but the first two are refusals,
-- which write nothing:
--   accepted      The turn waits; this is its receipt.
--   replayed      The same request was accepted before, with this receipt.
--   key_reused    The key was used for another request.
--   key_busy      A request with this key did not end within the lock timeout.
--   not_found     The principal has no such conversation.
--   busy          The conversation has an open turn. This does not wait for a turn that is just ending. The row of the
--                 key was inserted and rolled back, which leaves a dead tuple.
--   wrong_target  p_target is not a turn of the conversation.
--   wrong_bundle  p_bundles does not have the bundle of the turn, where `default` stands for none. Null allows any.
--   full          The queue or a share of it is full. The counts are those of enter_queue, with this turn.
--   late          It is past p_deadline, until which the stored files are not deleted as orphans.
--
-- Locks are taken in this order: key, conversation, queue. The queue comes last, because other accepts wait for it, and
-- the row of the turn can have megabytes.
--
-- p_request is a JSON object without bundle_id and events, which depend on rows: the conversation's bundle is the
-- default, and events that waited for a turn come before p_event. They are added as text, because Postgres' functions
-- reject JSON with U+0000.
CREATE OR REPLACE FUNCTION accept_turn(
    p_tenant text, p_project text, p_user_id text, p_route text, p_key text, p_request_hash text,
    p_conversation text, p_create boolean, p_turn text, p_target text, p_lane text, p_roles text[],
    p_bundle_id text, p_event text, p_request text, p_artifacts json, p_deadline timestamptz,
    p_lanes text[], p_share integer, p_unlocked integer, p_most integer,
    p_total bigint, p_of_tenant bigint, p_of_tenant_on_lane bigint, p_of_user bigint, p_bundles text[] DEFAULT NULL
) RETURNS TABLE (outcome text, receipt text, waiting bigint, of_tenant bigint, of_tenant_on_lane bigint, of_user bigint)
LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    v_bundle_id text := p_bundle_id;
    v_events text := p_event;
    v_ring boolean;
    v_ahead bigint;
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);

    -- Variables keep their values when this block is rolled back.
    BEGIN
        IF p_key IS NOT NULL THEN
            outcome := 'key_busy';
            IF claim_key(p_tenant, p_project, p_user_id, p_route, p_key, p_request_hash, p_conversation) IS NULL THEN
                SELECT i.response INTO receipt FROM idempotency i
                 WHERE i.route = p_route AND i.key = p_key AND i.request_hash = p_request_hash;
                outcome := CASE WHEN FOUND THEN 'replayed' ELSE 'key_reused' END;
                RETURN NEXT;
                RETURN;
            END IF;
        END IF;
        outcome := 'accepted';

        IF p_create THEN
            INSERT INTO conversation (id, tenant, project, user_id, bundle_id, state, inbox_seq, last_activity_at)
            VALUES (p_conversation, p_tenant, p_project, p_user_id, p_bundle_id, 'queued', 1, clock_timestamp());
        ELSE
            UPDATE conversation c
               SET state = 'queued', inbox_seq = c.inbox_seq + 1, last_activity_at = clock_timestamp()
             WHERE c.id = p_conversation AND c.state IN ('idle', 'error')
            RETURNING COALESCE(p_bundle_id, c.bundle_id) INTO v_bundle_id;
            IF NOT FOUND THEN
                PERFORM FROM conversation c WHERE c.id = p_conversation;
                outcome := CASE WHEN FOUND THEN 'busy' ELSE 'not_found' END;
                RAISE SQLSTATE 'EV003';
            END IF;
            WITH promoted AS (
                UPDATE signal s SET state = 'promoted', promoted_to = p_turn
                 WHERE s.conversation_id = p_conversation AND s.turn_id IS NULL AND s.state = 'accepted'
                RETURNING s.inbox_seq, format('{"id":%s,%s', to_json(s.id), substr(s.payload, 2)) AS event
            )
            SELECT concat_ws(',', string_agg(p.event, ',' ORDER BY p.inbox_seq), p_event) INTO v_events FROM promoted p;
        END IF;
        IF COALESCE(v_bundle_id, 'default') <> ALL (p_bundles) THEN
            outcome := 'wrong_bundle';
            RAISE SQLSTATE 'EV003';
        END IF;
        IF p_target IS NOT NULL THEN
            PERFORM FROM turn t WHERE t.id = p_target AND t.conversation_id = p_conversation;
            IF NOT FOUND THEN
                outcome := 'wrong_target';
                RAISE SQLSTATE 'EV003';
            END IF;
        END IF;

        INSERT INTO turn (id, conversation_id, tenant, project, user_id, lane, roles, request, ordinal)
        SELECT p_turn, p_conversation, p_tenant, p_project, p_user_id, p_lane, p_roles,
               format('{"bundle_id":%s,"events":[%s],%s', COALESCE(to_json(v_bundle_id)::text, 'null'), v_events,
                      substr(p_request, 2)),
               COALESCE(max(t.ordinal), 0) + 1
          FROM turn t WHERE t.conversation_id = p_conversation;
        IF p_artifacts IS NOT NULL THEN
            INSERT INTO artifact (conversation_id, tenant, project, user_id, id, turn_id, ref, rn, kind, filename,
                                  path, mime, size, sha256, object_key, visibility, verdict, description, removed)
            SELECT p_conversation, p_tenant, p_project, p_user_id, a.id, a.turn_id, a.ref, a.rn, a.kind, a.filename,
                   a.path, a.mime, a.size, a.sha256, a.object_key, a.visibility, a.verdict, a.description, a.removed
              FROM json_populate_recordset(NULL::artifact, p_artifacts) AS a;
        END IF;

        SELECT q.ring, q.ahead, q.waiting, q.of_tenant, q.of_tenant_on_lane, q.of_user
          INTO v_ring, v_ahead, waiting, of_tenant, of_tenant_on_lane, of_user
          FROM enter_queue(p_turn, p_conversation, p_tenant, p_project, p_user_id, p_lane, p_lanes, p_share,
                           p_total - p_unlocked, p_of_tenant - p_unlocked, p_most) AS q;
        IF waiting > p_total OR of_tenant > p_of_tenant OR of_tenant_on_lane > p_of_tenant_on_lane
           OR of_user > p_of_user THEN
            outcome := 'full';
            RAISE SQLSTATE 'EV003';
        END IF;

        receipt := json_build_object(
            'conversation_id', p_conversation, 'turn_id', p_turn, 'signal_id', NULL, 'state', NULL,
            'ring', v_ring, 'lane', p_lane,
            'position', json_build_object('ahead', LEAST(v_ahead, p_most - 1), 'more', v_ahead >= p_most));
        IF p_key IS NOT NULL THEN
            UPDATE idempotency i SET response = receipt WHERE i.route = p_route AND i.key = p_key;
        END IF;
        -- Right before the commit: a process that was frozen must not name objects that have been deleted meanwhile.
        IF clock_timestamp() > p_deadline THEN
            outcome := 'late';
            RAISE SQLSTATE 'EV003';
        END IF;
    EXCEPTION
        WHEN SQLSTATE 'EV003' THEN
            receipt := NULL;
        WHEN lock_not_available THEN
            IF outcome <> 'key_busy' THEN
                RAISE;
            END IF;
    END;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION accept_turn FROM PUBLIC;
GRANT EXECUTE ON FUNCTION accept_turn TO everturn_ingress;
