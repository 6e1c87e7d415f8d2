-- The only way to write blocks. Sets the principal, checks the fence, the next seq and the hash of the last block,
-- writes, and returns the conversation's inbox_seq. The update of the conversation's row comes first: a claim changes
-- the fence in the same row, so an append and a claim cannot both succeed. EV001: the fence is stale. EV002: the blocks
-- do not follow the last one. Runs as the worker, under the worker's policies.
CREATE OR REPLACE FUNCTION append_blocks(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_turn text, p_fence bigint, p_cursor text,
    p_next_seq bigint, p_turn_ids text[], p_rounds integer[], p_types text[], p_authors text[], p_refs text[],
    p_call_ids text[], p_bodies text[], p_ts text[], p_ts_first text[], p_hashes text[]
) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    v_count constant integer := cardinality(p_hashes);
    v_inbox bigint;
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);

    UPDATE conversation
       SET next_seq = next_seq + v_count, last_hash = COALESCE(p_hashes[v_count], last_hash), event_cursor = p_cursor
     WHERE id = p_conversation AND fence = p_fence
       AND (v_count = 0 OR next_seq = p_next_seq AND p_hashes[1] = encode(sha256(convert_to(concat_ws(E'\x1f',
            last_hash, p_next_seq, p_turn_ids[1], p_rounds[1], p_types[1], p_refs[1], COALESCE(p_call_ids[1], ''),
            p_ts[1], p_bodies[1]), 'UTF8')), 'hex'))
    RETURNING inbox_seq INTO v_inbox;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM conversation WHERE id = p_conversation AND fence = p_fence) THEN
            RAISE EXCEPTION 'block % does not follow the last one of %', p_next_seq, p_conversation USING ERRCODE = 'EV002';
        END IF;
        RAISE EXCEPTION 'fence % of % is stale', p_fence, p_conversation USING ERRCODE = 'EV001';
    END IF;

    INSERT INTO block (conversation_id, seq, tenant, project, user_id, turn_id, round, type, author, ref, call_id, body,
                       ts, ts_first, hash)
    SELECT p_conversation, p_next_seq + b.n - 1, p_tenant, p_project, p_user_id, b.turn_id, b.round, b.type, b.author,
           b.ref, b.call_id, b.body, b.ts, b.ts_first, b.hash
      FROM unnest(p_turn_ids, p_rounds, p_types, p_authors, p_refs, p_call_ids, p_bodies, p_ts, p_ts_first, p_hashes)
           WITH ORDINALITY AS b (turn_id, round, type, author, ref, call_id, body, ts, ts_first, hash, n);

    UPDATE turn SET attempt = 0 WHERE id = p_turn AND attempt <> 0;
    RETURN v_inbox;
END
$$;

REVOKE ALL ON FUNCTION append_blocks FROM PUBLIC;
GRANT EXECUTE ON FUNCTION append_blocks TO everturn_worker;


-- What most commits of a worker consist of, in one call: append_blocks, the effects of tools, the usage of models, and,
-- with p_close, the end of the turn (close_turn). p_effects, p_usage and p_close can be null. Returns inbox_seq. If p_close
-- has seen another inbox_seq, nothing is written. Runs as the worker, under the worker's policies.
CREATE OR REPLACE FUNCTION append_commit(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_turn text, p_fence bigint, p_cursor text,
    p_next_seq bigint, p_turn_ids text[], p_rounds integer[], p_types text[], p_authors text[], p_refs text[],
    p_call_ids text[], p_bodies text[], p_ts text[], p_ts_first text[], p_hashes text[],
    p_effects json, p_usage json, p_close json
) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    v_inbox bigint;
    v_last_hash text;
BEGIN
    IF p_close IS NOT NULL THEN
        PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
                set_config('app.user_id', p_user_id, true);
        SELECT c.inbox_seq, c.last_hash INTO v_inbox, v_last_hash
          FROM conversation c WHERE c.id = p_conversation AND c.fence = p_fence FOR NO KEY UPDATE;
        -- A repeat of a stored commit, whose first answer was lost, is left to append_blocks, which rejects it (EV002).
        IF v_inbox <> (p_close ->> 'seen_inbox')::bigint AND v_last_hash IS DISTINCT FROM p_hashes[cardinality(p_hashes)] THEN
            RETURN v_inbox;
        END IF;
    END IF;
    v_inbox := append_blocks(p_tenant, p_project, p_user_id, p_conversation, p_turn, p_fence, p_cursor, p_next_seq,
                             p_turn_ids, p_rounds, p_types, p_authors, p_refs, p_call_ids, p_bodies, p_ts, p_ts_first,
                             p_hashes);
    IF p_effects IS NOT NULL THEN
        INSERT INTO tool_effect (turn_id, conversation_id, tenant, project, user_id, call_id, tool_id, args_hash,
                                 effect, state)
        SELECT p_turn, p_conversation, p_tenant, p_project, p_user_id, e.*
          FROM json_to_recordset(p_effects) AS e (call_id text, tool_id text, args_hash text, effect text, state text)
            ON CONFLICT (turn_id, call_id) DO UPDATE SET state = EXCLUDED.state;
    END IF;
    IF p_usage IS NOT NULL THEN
        INSERT INTO usage_event (turn_id, conversation_id, tenant, project, user_id, model, role, input_tokens,
                                 output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, estimated, cost_known)
        SELECT p_turn, p_conversation, p_tenant, p_project, p_user_id, u.*
          FROM json_to_recordset(p_usage) AS u (
               model text, role text, input_tokens bigint, output_tokens bigint, cache_read_tokens bigint,
               cache_write_tokens bigint, cost_usd double precision, estimated boolean, cost_known boolean);
    END IF;
    IF p_close IS NOT NULL THEN
        PERFORM close_turn(p_conversation, p_turn, p_close);
    END IF;
    RETURN v_inbox;
END
$$;

REVOKE ALL ON FUNCTION append_commit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION append_commit TO everturn_worker;


-- Ends a running turn of the principal of the transaction, which has appended its last blocks. Settles the effects and
-- withdraws the approvals that it leaves open. EV004: the turn is not running.
CREATE OR REPLACE FUNCTION close_turn(p_conversation text, p_turn text, p_close json) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER AS $$
BEGIN
    -- An abandoned or interrupted turn leaves calls whose progress is unknown.
    UPDATE tool_effect SET state = CASE effect WHEN 'irreversible' THEN 'ambiguous' ELSE 'failed' END
     WHERE turn_id = p_turn AND state = 'intended';
    UPDATE approval SET state = 'withdrawn', settled_at = clock_timestamp()
     WHERE turn_id = p_turn AND state = 'pending';
    UPDATE conversation
       SET state = p_close ->> 'state', title = COALESCE(NULLIF(title, ''), p_close ->> 'title', ''),
           last_activity_at = clock_timestamp()
     WHERE id = p_conversation;
    UPDATE turn
       SET status = p_close ->> 'status', outcome = p_close ->> 'outcome', error = p_close ->> 'error',
           usage = p_close ->> 'usage', ended_at = clock_timestamp()
     WHERE id = p_turn AND status = 'running';
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not running', p_turn USING ERRCODE = 'EV004';
    END IF;
END
$$;

REVOKE ALL ON FUNCTION close_turn FROM PUBLIC;
GRANT EXECUTE ON FUNCTION close_turn TO everturn_worker;


-- The blocks of a conversation after the range of the last summary of scope `history`, in order; all if there is none.
-- Runs as the worker, under the worker's policies.
CREATE OR REPLACE FUNCTION load_recent_blocks(p_tenant text, p_project text, p_user_id text, p_conversation text)
RETURNS SETOF block
LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    v_covered bigint;
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);
    -- A statement of its own: under row-level security, a subquery would not be used to search the index. The body is
    -- canonical JSON: quotes inside texts are escaped, so only the body's own fields match. It is not cast to json,
    -- because the text of a summary can hold U+0000, which Postgres refuses to unescape.
    SELECT substring(b.body FROM '"last_seq":([0-9]+)')::bigint INTO v_covered
      FROM block b
     WHERE b.conversation_id = p_conversation AND b.type = 'conv.range.summary'
       AND position('"scope":"history"' IN b.body) > 0
     ORDER BY b.seq DESC LIMIT 1;
    RETURN QUERY
    SELECT b.* FROM block b WHERE b.conversation_id = p_conversation AND b.seq > COALESCE(v_covered, 0) ORDER BY b.seq;
END
$$;

REVOKE ALL ON FUNCTION load_recent_blocks FROM PUBLIC;
GRANT EXECUTE ON FUNCTION load_recent_blocks TO everturn_worker;


-- What a worker needs to begin or resume a turn, in one call: the turn, the blocks of load_recent_blocks (none without
-- p_with_blocks), the feedback that no block contains, the sum of the turn's usage, whether there are sources, signals
-- and files, whether the tenant may have another turn to ring for, and the revision of the project's skills, 0 without
-- any. No row if the principal has no such turn. Blocks as an array take four times as long as rows, which is 0.1 s for 25 MB. Runs as the worker, under the worker's policies.
CREATE OR REPLACE FUNCTION load_turn_start(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_turn text, p_with_blocks boolean
) RETURNS TABLE (turn turn, read_at timestamptz, blocks block[], feedback feedback[], input_tokens bigint,
                 output_tokens bigint, cache_read_tokens bigint, cost_usd double precision, cost_known boolean,
                 has_sources boolean, has_signals boolean, has_files boolean, may_have_next boolean,
                 skills_revision bigint)
LANGUAGE plpgsql SECURITY INVOKER AS $$
#variable_conflict use_column
DECLARE
    v_blocks block[];
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);
    IF p_with_blocks THEN
        v_blocks := ARRAY(SELECT b FROM load_recent_blocks(p_tenant, p_project, p_user_id, p_conversation) AS b);
    END IF;
    RETURN QUERY
    SELECT t, clock_timestamp(), v_blocks,
           ARRAY(SELECT f FROM feedback f WHERE f.conversation_id = p_conversation AND NOT f.told ORDER BY f.ts, f.id),
           used.*,
           EXISTS (SELECT FROM source s WHERE s.conversation_id = p_conversation),
           EXISTS (SELECT FROM signal s WHERE s.turn_id = p_turn),
           EXISTS (SELECT FROM artifact a WHERE a.conversation_id = p_conversation AND a.kind = 'file'),
           may_have_next(p_conversation),
           COALESCE((SELECT r.revision FROM project_skill_revision r
                      WHERE r.tenant = p_tenant AND r.project = p_project), 0)
      FROM turn t, LATERAL (
           SELECT COALESCE(sum(u.input_tokens), 0)::bigint, COALESCE(sum(u.output_tokens), 0)::bigint,
                  COALESCE(sum(u.cache_read_tokens), 0)::bigint, COALESCE(sum(u.cost_usd), 0),
                  COALESCE(bool_and(u.cost_known), true)
             FROM usage_event u WHERE u.turn_id = p_turn) AS used
     WHERE t.id = p_turn;
END
$$;

REVOKE ALL ON FUNCTION load_turn_start FROM PUBLIC;
GRANT EXECUTE ON FUNCTION load_turn_start TO everturn_worker;


-- Appends copied blocks to a conversation of the principal of the transaction, as long as the conversation has no turn:
-- once it has accepted a message, only its lease holder appends blocks.
CREATE OR REPLACE FUNCTION append_fork_blocks(
    p_conversation text, p_next_seq bigint, p_turn_ids text[], p_rounds integer[], p_types text[], p_refs text[],
    p_call_ids text[], p_bodies text[], p_ts text[], p_authors text[], p_ts_first text[], p_hashes text[]
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_owner conversation;
    v_count constant integer := cardinality(p_hashes);
BEGIN
    UPDATE conversation c SET next_seq = c.next_seq + v_count, last_hash = p_hashes[v_count]
     WHERE c.id = p_conversation AND c.fence = 0 AND c.next_seq = p_next_seq
       AND c.tenant = NULLIF(current_setting('app.tenant', true), '')
       AND c.project = NULLIF(current_setting('app.project', true), '')
       AND c.user_id = NULLIF(current_setting('app.user_id', true), '')
       AND NOT EXISTS (SELECT FROM turn t WHERE t.conversation_id = p_conversation)
    RETURNING c.* INTO v_owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% takes no copied block %', p_conversation, p_next_seq USING ERRCODE = 'EV002';
    END IF;

    INSERT INTO block (conversation_id, seq, tenant, project, user_id, turn_id, round, type, author, ref, call_id, body,
                       ts, ts_first, hash)
    SELECT p_conversation, p_next_seq + b.n - 1, v_owner.tenant, v_owner.project, v_owner.user_id, b.turn_id, b.round,
           b.type, b.author, b.ref, b.call_id, b.body, b.ts, b.ts_first, b.hash
      FROM unnest(p_turn_ids, p_rounds, p_types, p_authors, p_refs, p_call_ids, p_bodies, p_ts, p_ts_first, p_hashes)
           WITH ORDINALITY AS b (turn_id, round, type, author, ref, call_id, body, ts, ts_first, hash, n);
END
$$;

REVOKE ALL ON FUNCTION append_fork_blocks FROM PUBLIC;
GRANT EXECUTE ON FUNCTION append_fork_blocks TO everturn_ingress;


-- Copies the source pool between two conversations of the principal of the transaction, into an empty one. Keys and
-- addresses of files contain ids, so the caller passes new ones; the texts never leave the database.
CREATE OR REPLACE FUNCTION copy_fork_sources(p_source text, p_fork text, p_sids integer[], p_keys text[], p_urls text[])
RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO source (conversation_id, sid, tenant, project, user_id, key, title, url, source_type,
                        objective_relevance, published_time_iso, favicon_url, mime, snippet, text_chars, text, used)
    SELECT p_fork, s.sid, f.tenant, f.project, f.user_id, n.key, s.title, n.url, s.source_type,
           s.objective_relevance, s.published_time_iso, s.favicon_url, s.mime, s.snippet, s.text_chars, s.text, s.used
      FROM unnest(p_sids, p_keys, p_urls) AS n (sid, key, url)
      JOIN source s ON s.conversation_id = p_source AND s.sid = n.sid
      JOIN conversation f ON f.id = p_fork AND f.fence = 0
     WHERE (s.tenant, s.project, s.user_id) = (f.tenant, f.project, f.user_id)
       AND f.tenant = NULLIF(current_setting('app.tenant', true), '')
       AND f.project = NULLIF(current_setting('app.project', true), '')
       AND f.user_id = NULLIF(current_setting('app.user_id', true), '')
       AND NOT EXISTS (SELECT FROM source o WHERE o.conversation_id = p_fork)
$$;

REVOKE ALL ON FUNCTION copy_fork_sources FROM PUBLIC;
GRANT EXECUTE ON FUNCTION copy_fork_sources TO everturn_ingress;
