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
