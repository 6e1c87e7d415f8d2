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
