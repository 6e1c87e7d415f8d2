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
                                   'idempotency', 'source', 'lease', 'approval', 'turn', 'snippet'] LOOP
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
