-- Claims ended turns that are not indexed yet, the longest due first. A claimed turn is due again after 150 s, then 300,
-- 600 and so on, in case its worker dies: longer than an attempt may take (JOB_TIMEOUT_S of chat_proc.memory.indexer).
-- `tries` includes this attempt.
CREATE OR REPLACE FUNCTION claim_unindexed(p_limit integer)
RETURNS TABLE (tenant text, project text, user_id text, conversation_id text, turn_id text, tries integer)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH due AS (
        SELECT t.id FROM turn t
         WHERE t.indexed_at IS NULL AND t.status IN ('completed', 'failed', 'cancelled')
           AND t.index_due_at <= clock_timestamp()
         ORDER BY t.index_due_at LIMIT p_limit
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE turn t
       SET index_tries = t.index_tries + 1,
           index_due_at = clock_timestamp() + LEAST(3600, 150 * 2 ^ LEAST(t.index_tries, 5)) * interval '1 s'
      FROM due WHERE t.id = due.id
    RETURNING t.tenant, t.project, t.user_id, t.conversation_id, t.id, t.index_tries
$$;

REVOKE ALL ON FUNCTION claim_unindexed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_unindexed TO everturn_worker;


-- The blocks of a turn that have one of these types, in order, until their bodies have p_bytes together; at least one.
-- Runs as the worker, under the worker's policies.
CREATE OR REPLACE FUNCTION load_indexed_blocks(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_turn text, p_types text[], p_bytes bigint
) RETURNS SETOF block
LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    v_first bigint;
    v_end bigint;
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);
    SELECT t.first_seq, COALESCE((SELECT n.first_seq FROM turn n
                                   WHERE n.conversation_id = t.conversation_id AND n.ordinal > t.ordinal
                                     AND n.first_seq IS NOT NULL
                                   ORDER BY n.ordinal LIMIT 1), 9223372036854775807)
      INTO v_first, v_end FROM turn t WHERE t.id = p_turn AND t.conversation_id = p_conversation;
    RETURN QUERY
    SELECT (said.b).*
      FROM (SELECT b, COALESCE(sum(octet_length(b.body)) OVER (
                                   ORDER BY b.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
              FROM block b
             WHERE b.conversation_id = p_conversation AND b.turn_id = p_turn AND b.type = ANY (p_types)
               AND b.seq >= v_first AND b.seq < v_end) AS said
     WHERE said.bytes_before < p_bytes ORDER BY (said.b).seq;
END
$$;

REVOKE ALL ON FUNCTION load_indexed_blocks FROM PUBLIC;
GRANT EXECUTE ON FUNCTION load_indexed_blocks TO everturn_worker;


-- Replaces the snippets of a turn and marks it as indexed. Returns false if the principal has no such turn. Runs as the
-- worker, under the worker's policies.
CREATE OR REPLACE FUNCTION save_snippets(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_turn text, p_encoder text, p_targets text[],
    p_refs text[], p_texts text[], p_words text[], p_embeddings text[], p_ts text[]
) RETURNS boolean
LANGUAGE plpgsql SECURITY INVOKER AS $$
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);
    -- The row lock makes an erasure of the conversation wait until the snippets are committed, so that it erases them too.
    UPDATE turn SET indexed_at = clock_timestamp() WHERE id = p_turn AND conversation_id = p_conversation;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM snippet WHERE conversation_id = p_conversation AND turn_id = p_turn;
    INSERT INTO snippet (conversation_id, tenant, project, user_id, turn_id, encoder, target, ref, text, words,
                         embedding, ts)
    SELECT p_conversation, p_tenant, p_project, p_user_id, p_turn, p_encoder, s.target, s.ref, s.text,
           string_to_array(s.words, ' '), s.embedding::vector, s.ts::timestamptz
      FROM unnest(p_targets, p_refs, p_texts, p_words, p_embeddings, p_ts)
           AS s (target, ref, text, words, embedding, ts);
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION save_snippets FROM PUBLIC;
GRANT EXECUTE ON FUNCTION save_snippets TO everturn_worker;


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


-- The snippets of a person that match a query best, by vector and by words. Takes the person as arguments, because
-- row-level security would keep the planner from using the indexes; every part filters by tenant, project and user.
-- Vectors are compared with all of the person's, one by one, up to p_exact rows. Above that the graph is used, and if
-- it returns too few, all are compared after all, so the result is as long as it can be. Words that occur in more than
-- 50 of the person's snippets carry no information: at most 51 rows of a word are read, and gin_fuzzy_search_limit
-- keeps the index from listing all others. Beside a vector such words are ignored. Without one they count a hundredth,
-- so that they find something if the query has no others, and together never outweigh one rarer word.
-- In one conversation of up to 1,000 rows words are read from its rows instead, because the limit of the index would
-- drop rows of this conversation in favour of others.
-- The two rankings are merged by reciprocal rank (k = 60). Without a vector the score is the inverse document frequency
-- of the words. Recent snippets are raised by up to a quarter, which halves every week.
CREATE OR REPLACE FUNCTION search_snippets(
    p_tenant text, p_project text, p_user_id text, p_conversation text, p_except_turn text, p_targets text[],
    p_since timestamptz, p_until timestamptz, p_words text[], p_weights double precision[], p_encoder text,
    p_vector vector, p_limit integer, p_per_conversation integer, p_now timestamptz, p_exact integer
) RETURNS TABLE (conversation_id text, turn_id text, target text, ref text, text text, ts timestamptz,
                 score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp
SET enable_seqscan = off SET gin_fuzzy_search_limit = 500 AS $$
#variable_conflict use_column
DECLARE
    c_common constant integer := 50;
    c_common_weight constant double precision := 0.01;
    c_scanned_rows constant integer := 1000;
    c_k constant integer := 60;
    v_depth constant integer := GREATEST(100, 3 * p_limit);
    v_rows integer;
    v_scans boolean;
    v_near bigint[];
    v_worded bigint[];
    v_fits double precision[];
BEGIN
    SELECT count(*) INTO v_rows FROM (
        SELECT FROM snippet s
         WHERE s.tenant = p_tenant AND s.project = p_project AND s.user_id = p_user_id
           AND (p_conversation IS NULL OR s.conversation_id = p_conversation)
         LIMIT p_exact + 1) AS mine;

    IF p_vector IS NOT NULL AND v_rows > p_exact THEN
        SELECT array_agg(n.id ORDER BY n.distance) INTO v_near
          FROM nearest_snippets(p_tenant, p_project, p_user_id, p_conversation, p_except_turn, p_targets, p_since,
                                p_until, p_encoder, p_vector, v_depth) AS n;
    END IF;
    IF p_vector IS NOT NULL AND COALESCE(cardinality(v_near), 0) < LEAST(v_depth, v_rows) THEN
        WITH mine AS MATERIALIZED (
            SELECT s.id, s.embedding <#> p_vector AS distance FROM snippet s
             WHERE s.tenant = p_tenant AND s.project = p_project AND s.user_id = p_user_id
               AND s.encoder = p_encoder AND s.embedding IS NOT NULL
               AND (p_conversation IS NULL OR s.conversation_id = p_conversation)
               AND s.turn_id IS DISTINCT FROM p_except_turn AND s.target = ANY (p_targets)
               AND s.ts >= p_since AND s.ts < p_until
        )
        SELECT array_agg(b.id ORDER BY b.distance, b.id DESC) INTO v_near
          FROM (SELECT mine.id, mine.distance FROM mine ORDER BY mine.distance, mine.id DESC LIMIT v_depth) AS b;
    END IF;

    v_scans := p_conversation IS NOT NULL AND v_rows <= LEAST(p_exact, c_scanned_rows);
    WITH wanted AS (
        SELECT * FROM unnest(p_words, p_weights) AS w (word, weight)
    ), hit AS MATERIALIZED (
        SELECT w.word, w.weight, h.id
          FROM wanted w
         CROSS JOIN LATERAL (
            -- OFFSET 0 keeps the filters out: nothing but the index of words answers the inner query.
            SELECT g.id FROM (SELECT s.* FROM snippet s WHERE s.words @> ARRAY[w.word] OFFSET 0) AS g
             WHERE g.tenant = p_tenant AND g.project = p_project AND g.user_id = p_user_id
               AND (p_conversation IS NULL OR g.conversation_id = p_conversation)
               AND g.turn_id IS DISTINCT FROM p_except_turn AND g.target = ANY (p_targets)
               AND g.ts >= p_since AND g.ts < p_until
             LIMIT c_common + 1) AS h
         WHERE NOT v_scans
        UNION ALL
        SELECT w.word, w.weight, s.id
          FROM snippet s
         CROSS JOIN LATERAL unnest(s.words) AS x (word)
          JOIN wanted w ON w.word = x.word
         WHERE v_scans
           AND s.tenant = p_tenant AND s.project = p_project AND s.user_id = p_user_id
           AND s.conversation_id = p_conversation
           AND s.turn_id IS DISTINCT FROM p_except_turn AND s.target = ANY (p_targets)
           AND s.ts >= p_since AND s.ts < p_until
    ), spread AS (
        SELECT hit.word, count(*) AS rows FROM hit GROUP BY hit.word
    ), worth AS (
        SELECT s.word,
               ln(1 + (GREATEST(v_rows, s.rows) - s.rows + 0.5::double precision) / (s.rows + 0.5))
               * CASE WHEN s.rows > c_common THEN c_common_weight ELSE 1 END AS idf
          FROM spread s WHERE s.rows <= c_common OR p_vector IS NULL
    )
    SELECT array_agg(b.id ORDER BY b.fit DESC, b.id DESC), array_agg(b.fit ORDER BY b.fit DESC, b.id DESC)
      INTO v_worded, v_fits
      FROM (SELECT hit.id, sum(hit.weight * worth.idf) AS fit
              FROM hit JOIN worth ON worth.word = hit.word
             GROUP BY hit.id ORDER BY fit DESC, hit.id DESC LIMIT v_depth) AS b;

    RETURN QUERY
    WITH placed AS (
        SELECT p.id, sum(p.fit) AS fit
          FROM (SELECT n.id, 1.0::double precision / (c_k + n.place) AS fit
                  FROM unnest(v_near) WITH ORDINALITY AS n (id, place)
                UNION ALL
                SELECT n.id, CASE WHEN p_vector IS NULL THEN n.fit ELSE 1.0::double precision / (c_k + n.place) END
                  FROM unnest(v_worded, v_fits) WITH ORDINALITY AS n (id, fit, place)) AS p
         GROUP BY p.id
    ), lifted AS (
        SELECT s.*, placed.fit * (1 + 0.25 * 0.5 ^ GREATEST(0, extract(epoch FROM p_now - s.ts) / 604800)) AS fit
          FROM placed JOIN snippet s ON s.id = placed.id
         WHERE s.tenant = p_tenant AND s.project = p_project AND s.user_id = p_user_id
    ), best AS (
        SELECT DISTINCT ON (l.conversation_id, l.ref) l.* FROM lifted l
         ORDER BY l.conversation_id, l.ref, l.fit DESC, l.id
    ), ranked AS (
        SELECT b.*, row_number() OVER (PARTITION BY b.conversation_id ORDER BY b.fit DESC, b.id DESC) AS place FROM best b
    )
    SELECT r.conversation_id, r.turn_id, r.target, r.ref, r.text, r.ts, r.fit
      FROM ranked r WHERE r.place <= p_per_conversation
     ORDER BY r.fit DESC, r.id DESC LIMIT p_limit;
END
$$;

REVOKE ALL ON FUNCTION search_snippets FROM PUBLIC;
GRANT EXECUTE ON FUNCTION search_snippets TO everturn_ingress, everturn_worker;
