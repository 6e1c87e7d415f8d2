-- The snippets of a person with the nearest vectors, found in the graph over all vectors. The search continues until
-- enough rows pass the filters, but not for ever: where most rows belong to others, it may return fewer.
CREATE OR REPLACE FUNCTION nearest_snippets(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_except_turn text, p_targets text[],
    p_since timestamptz, p_until timestamptz, p_encoder text, p_vector vector, p_limit integer
) RETURNS TABLE (id bigint, distance double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp
SET hnsw.iterative_scan = relaxed_order SET hnsw.ef_search = 100 SET enable_sort = off AS $$
BEGIN
    RETURN QUERY
    SELECT s.id, s.embedding <#> p_vector FROM snippet s
     WHERE s.tenant = p_tenant AND s.project = p_project AND s.user_id = p_user_id AND s.encoder = p_encoder
       AND (p_conversation IS NULL OR s.conversation_id = p_conversation)
       AND s.turn_id IS DISTINCT FROM p_except_turn AND s.target = ANY (p_targets)
       AND s.ts >= p_since AND s.ts < p_until
     ORDER BY s.embedding <#> p_vector LIMIT p_limit;
END
$$;

REVOKE ALL ON FUNCTION nearest_snippets FROM PUBLIC;
GRANT EXECUTE ON FUNCTION nearest_snippets TO everturn_dispatch;
