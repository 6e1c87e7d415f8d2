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
