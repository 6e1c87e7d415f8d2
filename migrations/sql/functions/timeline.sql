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
