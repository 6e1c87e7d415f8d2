-- Deletes a conversation of the principal of the transaction with all its rows. Returns no row if the principal has no
-- such conversation. The row is locked first, which waits for a fork of it to end; then the fence grows, under the lock
-- that every append takes, so that a running worker cannot write any more.
-- Snippets are deleted after turns: the indexer locks its turn's row while it writes them.
CREATE OR REPLACE FUNCTION erase_conversation(p_conversation text)
RETURNS TABLE (object_keys text[], stores text[], removed bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_store text;
    v_count bigint;
BEGIN
    PERFORM FROM conversation c
      WHERE c.id = p_conversation
        AND c.tenant = NULLIF(current_setting('app.tenant', true), '')
        AND c.project = NULLIF(current_setting('app.project', true), '')
        AND c.user_id = NULLIF(current_setting('app.user_id', true), '')
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE conversation c SET fence = c.fence + 1 WHERE c.id = p_conversation;

    SELECT COALESCE(array_agg(DISTINCT a.object_key), '{}') INTO object_keys
      FROM artifact a WHERE a.conversation_id = p_conversation;
    FOREACH v_store IN ARRAY ARRAY['block', 'artifact', 'signal', 'feedback', 'tool_effect', 'usage_event',
                                   'idempotency', 'source', 'lease', 'approval', 'mcp_request', 'detached_run',
                                   'turn', 'snippet'] LOOP
        EXECUTE format('DELETE FROM %I WHERE conversation_id = $1', v_store) USING p_conversation;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        stores := stores || v_store;
        removed := removed || v_count;
    END LOOP;
    DELETE FROM conversation c WHERE c.id = p_conversation;
    stores := stores || 'conversation'::text;
    removed := removed || 1::bigint;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION erase_conversation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erase_conversation TO everturn_ingress;


-- Counts what an erasure left: the rows of every table, also of tables that later migrations create, with this
-- conversation_id.
CREATE OR REPLACE FUNCTION count_remains(p_conversation text) RETURNS TABLE (store text, remaining bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    FOR store IN
        SELECT c.relname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE a.attname = 'conversation_id' AND NOT a.attisdropped AND c.relkind IN ('r', 'p')
           AND c.relnamespace = 'public'::regnamespace
         ORDER BY 1
    LOOP
        EXECUTE format('SELECT count(*) FROM %I WHERE conversation_id = $1', store) INTO remaining USING p_conversation;
        RETURN NEXT;
    END LOOP;
    store := 'conversation';
    SELECT count(*) INTO remaining FROM conversation c WHERE c.id = p_conversation;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION count_remains FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_remains TO everturn_ingress;


-- Keys of a conversation's objects that a row of any conversation still names: objects that forks share.
CREATE OR REPLACE FUNCTION named_objects(p_conversation text) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT a.object_key FROM artifact a
     WHERE a.object_key >= p_conversation || '/' AND a.object_key < p_conversation || '0'
$$;

REVOKE ALL ON FUNCTION named_objects FROM PUBLIC;
GRANT EXECUTE ON FUNCTION named_objects TO everturn_ingress;


-- Which of these object keys no row of any tenant names: no artifact and no document of a collection has the file, no
-- turn has the manifest of a round.
-- While a conversation has a lease, none of its objects is an orphan: a worker saves an object first and then commits
-- its row under its fence, even under an expired lease that nobody else has taken. The same is true while it has a
-- detached run, whose row names its result.
-- Reveals only which of the caller's own keys are unknown.
CREATE OR REPLACE FUNCTION find_orphan_objects(p_keys text[]) RETURNS TABLE (key text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT asked FROM unnest(p_keys[1:1000]) AS asked
     WHERE NOT EXISTS (SELECT FROM lease l WHERE l.conversation_id = split_part(asked, '/', 1))
       AND NOT EXISTS (SELECT FROM detached_run r WHERE r.conversation_id = split_part(asked, '/', 1))
       AND NOT EXISTS (SELECT FROM artifact a WHERE a.object_key = asked)
       AND NOT EXISTS (SELECT FROM collection_document d WHERE d.object_key = asked)
       AND NOT EXISTS (
        SELECT FROM turn t
         WHERE split_part(asked, '/', 2) = 'manifests'
           AND t.id = split_part(split_part(asked, '/', 3), '.', 1)
           AND t.conversation_id = split_part(asked, '/', 1))
$$;

REVOKE ALL ON FUNCTION find_orphan_objects FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_orphan_objects TO everturn_ingress, everturn_worker;


-- The time before which a conversation is expired for this age. Fails if the operator keeps conversations for ever.
CREATE OR REPLACE FUNCTION find_expiry(p_age interval) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    v_days integer;
BEGIN
    SELECT l.min_days INTO v_days FROM retention_limit l;
    IF v_days IS NULL THEN
        RAISE EXCEPTION 'nothing may expire in this database: run the migration with RETENTION_DAYS set as for the workers'
            USING ERRCODE = '57E01';
    END IF;
    RETURN clock_timestamp() - greatest(p_age, make_interval(days => v_days));
END
$$;


-- Whether a conversation had no activity since then and has no remaining work.
CREATE OR REPLACE FUNCTION is_expired(c conversation, p_before timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT c.last_activity_at < p_before AND COALESCE(c.touched_at < p_before, true) AND c.state IN ('idle', 'error')
       AND NOT EXISTS (SELECT FROM turn t WHERE t.conversation_id = c.id
                       AND (t.status NOT IN ('completed', 'failed', 'cancelled') OR t.announced_at IS NULL))
       AND NOT EXISTS (SELECT FROM signal s WHERE s.conversation_id = c.id AND s.state = 'accepted')
$$;


-- Conversations without activity for p_age, and for at least as long as the operator's retention_limit, the oldest
-- first, without those of p_skip.
CREATE OR REPLACE FUNCTION due_conversations(p_age interval, p_skip text[], p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.id FROM conversation c
     WHERE c.last_activity_at < (SELECT find_expiry(p_age)) AND c.id <> ALL (p_skip)
       AND is_expired(c, (SELECT find_expiry(p_age)))
     ORDER BY c.last_activity_at LIMIT p_limit
$$;

REVOKE ALL ON FUNCTION due_conversations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_conversations TO everturn_worker;


-- Erases a conversation as its owner would, and returns the owner, so that its objects can be deleted in that name.
-- Returns no row if there was activity meanwhile or another transaction has locked it.
CREATE OR REPLACE FUNCTION expire_conversation(p_conversation text, p_age interval)
RETURNS TABLE (tenant text, project text, user_id text, object_keys text[], removed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_due conversation;
BEGIN
    SELECT c.* INTO v_due FROM conversation c WHERE c.id = p_conversation FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR NOT is_expired(v_due, find_expiry(p_age)) THEN
        RETURN;
    END IF;
    PERFORM set_config('app.tenant', v_due.tenant, true), set_config('app.project', v_due.project, true),
            set_config('app.user_id', v_due.user_id, true);
    RETURN QUERY SELECT v_due.tenant, v_due.project, v_due.user_id, e.object_keys,
                        (SELECT sum(n) FROM unnest(e.removed) AS n)::bigint
                   FROM erase_conversation(p_conversation) AS e;
    PERFORM set_config('app.tenant', '', true), set_config('app.project', '', true), set_config('app.user_id', '', true);
END
$$;

REVOKE ALL ON FUNCTION expire_conversation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION expire_conversation TO everturn_worker;


-- Deletes expired idempotency rows and requests to connect accounts, skills that were removed from their projects a week
-- ago, and people's connections that no worker has used for 180 days, or p_age if that is less, or that never got tokens.
-- If p_age is given, also older rows of the ledgers: usage by its time, effects by the time of their turn, which its id
-- begins with. At most p_limit of each table.
CREATE OR REPLACE FUNCTION remove_expired_rows(p_age interval, p_limit integer)
RETURNS TABLE (store text, removed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_before constant timestamptz := CASE WHEN p_age IS NOT NULL THEN find_expiry(p_age) END;
    v_ms constant text := lpad(to_hex((extract(epoch FROM v_before) * 1000)::bigint), 12, '0');
BEGIN
    DELETE FROM project_skill WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM project_skill s WHERE s.removed_at < clock_timestamp() - interval '7 days' LIMIT p_limit));
    store := 'project_skill';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
    DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM idempotency i WHERE i.expires_at < clock_timestamp() LIMIT p_limit FOR UPDATE SKIP LOCKED));
    store := 'idempotency';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
    DELETE FROM mcp_request WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM mcp_request r WHERE r.expires_at < clock_timestamp() - interval '1 hour'
         LIMIT p_limit FOR UPDATE SKIP LOCKED));
    store := 'mcp_request';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
    DELETE FROM mcp_connection WHERE ctid = ANY (ARRAY(
        SELECT c.ctid FROM mcp_connection c
         WHERE c.used_at < GREATEST(v_before, clock_timestamp() - interval '180 days')
            OR (c.connected_at IS NULL AND c.lease_until < clock_timestamp() - interval '1 hour')
         LIMIT p_limit FOR UPDATE SKIP LOCKED));
    store := 'mcp_connection';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
    IF p_age IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM usage_event WHERE ctid = ANY (ARRAY(
        SELECT u.ctid FROM usage_event u WHERE u.ts < v_before LIMIT p_limit));
    store := 'usage_event';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
    DELETE FROM tool_effect WHERE ctid = ANY (ARRAY(
        SELECT e.ctid FROM tool_effect e JOIN turn t ON t.id = e.turn_id
         WHERE e.turn_id < 'turn_' || left(v_ms, 8) || '-' || right(v_ms, 4) AND t.ended_at < v_before LIMIT p_limit));
    store := 'tool_effect';
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN NEXT;
END
$$;

REVOKE ALL ON FUNCTION remove_expired_rows FROM PUBLIC;
GRANT EXECUTE ON FUNCTION remove_expired_rows TO everturn_worker;
