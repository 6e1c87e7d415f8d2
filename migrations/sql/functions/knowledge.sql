-- The version of each of these spaces that serves: the wanted one if it is whole, otherwise the newest whole one. Of the
-- bundle `/collections`, whose spaces are collections of people, only those that the principal of the transaction may
-- read.
CREATE OR REPLACE FUNCTION served_knowledge(p_bundle text, p_names text[], p_signatures text[])
RETURNS SETOF knowledge_space
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT ON (s.name) s.*
      FROM unnest(p_names, p_signatures) AS w (name, signature)
      JOIN knowledge_space s ON s.bundle_id = p_bundle AND s.name = w.name AND s.state = 'ready'
     WHERE p_bundle <> '/collections'
        OR EXISTS (SELECT FROM collection c
                    WHERE c.id = s.name AND c.tenant = current_setting('app.tenant', true)
                      AND c.project = current_setting('app.project', true)
                      AND (c.scope = 'project' OR c.user_id = current_setting('app.user_id', true)))
     ORDER BY s.name, (s.signature = w.signature) DESC NULLS LAST, s.built_at DESC, s.id DESC
$$;

REVOKE ALL ON FUNCTION served_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION served_knowledge TO everturn_dispatch;


-- Locks and renews the lease of a builder; null if it has lost the lease.
CREATE OR REPLACE FUNCTION leased_knowledge(
    p_bundle text, p_name text, p_signature text, p_holder text, p_lease_s double precision
) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE knowledge_space
       SET lease_until = clock_timestamp() + p_lease_s * interval '1 s', wanted_at = clock_timestamp()
     WHERE bundle_id = p_bundle AND name = p_name AND signature = p_signature AND state <> 'ready'
       AND holder = p_holder AND lease_until > clock_timestamp()
    RETURNING id
$$;

REVOKE ALL ON FUNCTION leased_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION leased_knowledge TO everturn_dispatch;


-- Records that a worker wants a version of a space, and returns the version's state.
CREATE OR REPLACE FUNCTION want_knowledge(
    p_bundle text, p_name text, p_signature text, p_encoder text, p_untrusted boolean
) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO knowledge_space (bundle_id, name, signature, encoder, untrusted, state, wanted_at)
    VALUES (p_bundle, p_name, p_signature, p_encoder, p_untrusted, 'building', clock_timestamp())
    ON CONFLICT (bundle_id, name, signature) DO UPDATE SET wanted_at = EXCLUDED.wanted_at
    RETURNING state
$$;

REVOKE ALL ON FUNCTION want_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION want_knowledge TO everturn_worker;


-- Takes the lease for building a version, unless another builder has it, it is whole, or it failed a moment ago.
CREATE OR REPLACE FUNCTION lease_knowledge(
    p_bundle text, p_name text, p_signature text, p_holder text, p_lease_s double precision
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE knowledge_space
       SET holder = p_holder, lease_until = clock_timestamp() + p_lease_s * interval '1 s', state = 'building'
     WHERE bundle_id = p_bundle AND name = p_name AND signature = p_signature AND state <> 'ready'
       AND (holder IS NULL OR holder = p_holder OR lease_until <= clock_timestamp())
       AND (retry_at IS NULL OR retry_at <= clock_timestamp());
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION lease_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lease_knowledge TO everturn_worker;


-- The saved documents of a version.
CREATE OR REPLACE FUNCTION saved_knowledge(p_bundle text, p_name text, p_signature text)
RETURNS TABLE (path text, digest text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT d.path, d.digest
      FROM knowledge_space s JOIN knowledge_document d ON d.version = s.id
     WHERE s.bundle_id = p_bundle AND s.name = p_name AND s.signature = p_signature
$$;

REVOKE ALL ON FUNCTION saved_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION saved_knowledge TO everturn_worker;


-- Copies documents with these digests from the version that serves, until they have p_passages passages; how many.
CREATE OR REPLACE FUNCTION copy_knowledge(
    p_bundle text, p_name text, p_signature text, p_holder text, p_lease_s double precision, p_paths text[],
    p_digests text[], p_passages integer
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_to bigint := leased_knowledge(p_bundle, p_name, p_signature, p_holder, p_lease_s);
    v_from bigint;
    v_documents integer;
    v_passages integer;
BEGIN
    SELECT s.id INTO v_from
      FROM served_knowledge(p_bundle, ARRAY[p_name], ARRAY[p_signature]) AS s
      JOIN knowledge_space t ON t.id = v_to AND t.encoder = s.encoder;
    IF v_from IS NULL THEN
        RETURN 0;
    END IF;
    WITH missing AS (
        SELECT d.*, sum(d.passages) OVER (ORDER BY d.path ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM unnest(p_paths, p_digests) AS w (path, digest)
          JOIN knowledge_document d ON d.version = v_from AND d.path = w.path AND d.digest = w.digest
         WHERE NOT EXISTS (SELECT FROM knowledge_document k WHERE k.version = v_to AND k.path = w.path)
    ), chosen AS (
        SELECT * FROM missing WHERE COALESCE(before, 0) < p_passages ORDER BY path LIMIT 200
    ), copied AS (
        INSERT INTO knowledge_document (version, path, digest, title, text, passages)
        SELECT v_to, c.path, c.digest, c.title, c.text, c.passages FROM chosen c
        RETURNING id, path, passages
    ), filled AS (
        INSERT INTO knowledge_passage (version, document, heading, start_line, end_line, start_char, chars, words,
                                       embedding)
        SELECT v_to, copied.id, p.heading, p.start_line, p.end_line, p.start_char, p.chars,
               ARRAY(SELECT v_to::text || ltrim(w.word, '0123456789') FROM unnest(p.words) AS w (word)), p.embedding
          FROM copied JOIN chosen ON chosen.path = copied.path JOIN knowledge_passage p ON p.document = chosen.id
    )
    SELECT count(*), COALESCE(sum(copied.passages), 0) INTO v_documents, v_passages FROM copied;
    -- A copy can take longer than the lease, and renewals wait for it.
    UPDATE knowledge_space
       SET documents = documents + v_documents, passages = passages + v_passages,
           lease_until = clock_timestamp() + p_lease_s * interval '1 s'
     WHERE id = v_to;
    RETURN v_documents;
END
$$;

REVOKE ALL ON FUNCTION copy_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION copy_knowledge TO everturn_worker;


-- Adds documents to a version and renews the lease. p_of is the place of a passage's document among the documents, from
-- 1 on. Returns false if the builder has lost the lease.
CREATE OR REPLACE FUNCTION save_knowledge(
    p_bundle text, p_name text, p_signature text, p_holder text, p_lease_s double precision, p_paths text[],
    p_digests text[], p_titles text[], p_texts text[], p_of integer[], p_headings text[], p_start_lines integer[],
    p_end_lines integer[], p_start_chars integer[], p_chars integer[], p_words text[], p_embeddings text[]
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_version bigint := leased_knowledge(p_bundle, p_name, p_signature, p_holder, p_lease_s);
    v_documents integer;
    v_passages integer;
BEGIN
    IF v_version IS NULL THEN
        RETURN false;
    END IF;
    WITH given AS (
        SELECT d.*, (SELECT count(*) FROM unnest(p_of) AS o (place) WHERE o.place = d.place)::integer AS passages
          FROM unnest(p_paths, p_digests, p_titles, p_texts) WITH ORDINALITY AS d (path, digest, title, text, place)
    ), saved AS (
        INSERT INTO knowledge_document (version, path, digest, title, text, passages)
        SELECT v_version, g.path, g.digest, g.title, g.text, g.passages FROM given g
        ON CONFLICT (version, path) DO NOTHING
        RETURNING id, path, passages
    ), filled AS (
        INSERT INTO knowledge_passage (version, document, heading, start_line, end_line, start_char, chars, words,
                                       embedding)
        SELECT v_version, saved.id, p.heading, p.start_line, p.end_line, p.start_char, p.chars,
               ARRAY(SELECT v_version::text || w.word FROM unnest(string_to_array(p.words, ' ')) AS w (word)),
               p.embedding::vector
          FROM unnest(p_of, p_headings, p_start_lines, p_end_lines, p_start_chars, p_chars, p_words, p_embeddings)
               AS p (place, heading, start_line, end_line, start_char, chars, words, embedding)
          JOIN given ON given.place = p.place
          JOIN saved ON saved.path = given.path
    )
    SELECT count(*), COALESCE(sum(saved.passages), 0) INTO v_documents, v_passages FROM saved;
    -- A batch can take longer than the lease, and renewals wait for it.
    UPDATE knowledge_space
       SET documents = documents + v_documents, passages = passages + v_passages,
           lease_until = clock_timestamp() + p_lease_s * interval '1 s'
     WHERE id = v_version;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION save_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION save_knowledge TO everturn_worker;


-- Ends a build: with an error, or the version serves from now on. A version that failed can be built again after
-- p_retry_s, doubled with every further failure, at most an hour. Returns false if the builder has lost the lease.
CREATE OR REPLACE FUNCTION finish_knowledge(
    p_bundle text, p_name text, p_signature text, p_holder text, p_error text, p_retry_s double precision
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE knowledge_space s
       SET state = CASE WHEN p_error IS NULL THEN 'ready' ELSE 'failed' END, error = p_error,
           documents = (SELECT count(*) FROM knowledge_document d WHERE d.version = s.id),
           passages = (SELECT COALESCE(sum(d.passages), 0) FROM knowledge_document d WHERE d.version = s.id),
           built_at = CASE WHEN p_error IS NULL THEN clock_timestamp() END,
           tries = CASE WHEN p_error IS NULL THEN 0 ELSE tries + 1 END,
           retry_at = CASE WHEN p_error IS NOT NULL THEN
                          clock_timestamp() + LEAST(3600, p_retry_s * 2 ^ LEAST(tries, 10)) * interval '1 s' END,
           holder = NULL, lease_until = NULL
     WHERE bundle_id = p_bundle AND name = p_name AND signature = p_signature AND state <> 'ready'
       AND holder = p_holder AND lease_until > clock_timestamp();
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION finish_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION finish_knowledge TO everturn_worker;


-- Deletes documents of versions that nobody wants, until they have p_passages passages; how many. A version is unwanted
-- if nobody has wanted it for p_kept_s and a newer one of its space serves, or for p_forgotten_s, unless it is that of a
-- collection, which is kept until the collection is deleted: then it is unwanted at once, or after p_kept_s if a worker
-- had just begun to build it. It no longer serves once a document is missing; if somebody wants it again, it is built
-- again.
CREATE OR REPLACE FUNCTION delete_unwanted_knowledge(
    p_kept_s double precision, p_forgotten_s double precision, p_passages integer
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_unwanted bigint[];
    v_documents integer;
BEGIN
    WITH unwanted AS (
        SELECT s.id FROM knowledge_space s
         WHERE s.wanted_at < clock_timestamp() - p_forgotten_s * interval '1 s'
               AND (s.bundle_id <> '/collections' OR s.wanted_at = '-infinity')
            OR s.wanted_at < clock_timestamp() - p_kept_s * interval '1 s'
               AND (EXISTS (SELECT FROM knowledge_space n
                             WHERE n.bundle_id = s.bundle_id AND n.name = s.name AND n.state = 'ready'
                               AND n.id <> s.id AND n.wanted_at > s.wanted_at)
                    OR s.bundle_id = '/collections' AND NOT EXISTS (SELECT FROM collection c WHERE c.id = s.name))
           FOR UPDATE SKIP LOCKED
    ), closed AS (
        UPDATE knowledge_space s SET state = 'building', holder = NULL, lease_until = NULL
          FROM unwanted u WHERE s.id = u.id
        RETURNING s.id
    )
    SELECT array_agg(closed.id) INTO v_unwanted FROM closed;
    WITH listed AS (
        SELECT d.id, sum(d.passages) OVER (ORDER BY d.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM knowledge_document d WHERE d.version = ANY (v_unwanted)
    ), deleted AS (
        DELETE FROM knowledge_document d USING listed l
         WHERE d.id = l.id AND COALESCE(l.before, 0) < p_passages
        RETURNING d.id
    )
    SELECT count(*) INTO v_documents FROM deleted;
    DELETE FROM knowledge_space s
     WHERE s.id = ANY (v_unwanted) AND NOT EXISTS (SELECT FROM knowledge_document d WHERE d.version = s.id);
    RETURN v_documents;
END
$$;

REVOKE ALL ON FUNCTION delete_unwanted_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION delete_unwanted_knowledge TO everturn_worker;


-- The passages of these spaces of a bundle that match a query best, by vector and by words, as search_snippets does it:
-- all vectors of the versions that serve are compared, and words that occur in more than 50 passages are ignored beside
-- a vector, and count a hundredth without one. p_words begin with `:`, for words of a passage, or with `!`, for those of
-- its headings and its path. The two rankings are merged by reciprocal rank (k = 60).
CREATE OR REPLACE FUNCTION search_knowledge(
    p_bundle text, p_names text[], p_signatures text[], p_words text[], p_weights double precision[], p_encoder text,
    p_vector vector, p_limit integer, p_per_document integer
) RETURNS TABLE (path text, title text, heading text, start_line integer, end_line integer, text text,
                 score double precision, untrusted boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp
SET enable_seqscan = off SET gin_fuzzy_search_limit = 500 AS $$
#variable_conflict use_column
DECLARE
    c_common constant integer := 50;
    c_common_weight constant double precision := 0.01;
    c_k constant integer := 60;
    v_depth constant integer := GREATEST(100, 3 * p_limit);
    v_versions bigint[];
    v_comparable bigint[];
    v_rows bigint;
    v_near bigint[];
    v_worded bigint[];
    v_fits double precision[];
BEGIN
    SELECT array_agg(s.id), array_agg(s.id) FILTER (WHERE s.encoder = p_encoder), sum(s.passages)
      INTO v_versions, v_comparable, v_rows
      FROM served_knowledge(p_bundle, p_names, p_signatures) AS s;

    IF p_vector IS NOT NULL THEN
        SELECT array_agg(b.id ORDER BY b.distance, b.id) INTO v_near
          FROM (SELECT p.id, p.embedding <#> p_vector AS distance FROM knowledge_passage p
                 WHERE p.version = ANY (v_comparable) ORDER BY distance, p.id LIMIT v_depth) AS b;
    END IF;

    WITH wanted AS (
        SELECT w.word, w.weight, v.id::text || w.word AS lexeme
          FROM unnest(p_words, p_weights) AS w (word, weight) CROSS JOIN unnest(v_versions) AS v (id)
    ), hit AS MATERIALIZED (
        SELECT w.word, w.weight, h.id
          FROM wanted w
         CROSS JOIN LATERAL (SELECT p.id FROM knowledge_passage p WHERE p.words @> ARRAY[w.lexeme]
                              LIMIT c_common + 1) AS h
    ), spread AS (
        SELECT hit.word, count(*) AS rows FROM hit GROUP BY hit.word
    ), worth AS (
        SELECT s.word,
               ln(1 + (GREATEST(v_rows, s.rows) - s.rows + 0.5::double precision) / (s.rows + 0.5))
               * CASE WHEN s.rows > c_common THEN c_common_weight ELSE 1 END AS idf
          FROM spread s WHERE s.rows <= c_common OR p_vector IS NULL
    )
    SELECT array_agg(b.id ORDER BY b.fit DESC, b.id), array_agg(b.fit ORDER BY b.fit DESC, b.id)
      INTO v_worded, v_fits
      FROM (SELECT hit.id, sum(hit.weight * worth.idf) AS fit
              FROM hit JOIN worth ON worth.word = hit.word
             GROUP BY hit.id ORDER BY fit DESC, hit.id LIMIT v_depth) AS b;

    RETURN QUERY
    WITH placed AS (
        SELECT p.id, sum(p.fit) AS fit
          FROM (SELECT n.id, 1.0::double precision / (c_k + n.place) AS fit
                  FROM unnest(v_near) WITH ORDINALITY AS n (id, place)
                UNION ALL
                SELECT n.id, CASE WHEN p_vector IS NULL THEN n.fit ELSE 1.0::double precision / (c_k + n.place) END
                  FROM unnest(v_worded, v_fits) WITH ORDINALITY AS n (id, fit, place)) AS p
         GROUP BY p.id
    ), ranked AS (
        SELECT p.*, placed.fit, row_number() OVER (PARTITION BY p.document ORDER BY placed.fit DESC, p.id) AS place
          FROM placed JOIN knowledge_passage p ON p.id = placed.id
    ), best AS (
        SELECT * FROM ranked r WHERE r.place <= p_per_document ORDER BY r.fit DESC, r.id LIMIT p_limit
    )
    SELECT d.path, d.title, b.heading, b.start_line, b.end_line, substr(d.text, b.start_char + 1, b.chars), b.fit,
           s.untrusted
      FROM best b
      JOIN knowledge_document d ON d.id = b.document
      JOIN knowledge_space s ON s.id = b.version
     ORDER BY b.fit DESC, b.id;
END
$$;

REVOKE ALL ON FUNCTION search_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION search_knowledge TO everturn_worker;


-- The document with this path in the versions that serve.
CREATE OR REPLACE FUNCTION load_knowledge(p_bundle text, p_names text[], p_signatures text[], p_path text)
RETURNS TABLE (path text, title text, text text, digest text, untrusted boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT d.path, d.title, d.text, d.digest, s.untrusted
      FROM served_knowledge(p_bundle, p_names, p_signatures) AS s
      JOIN knowledge_document d ON d.version = s.id AND d.path = p_path
     LIMIT 1
$$;

REVOKE ALL ON FUNCTION load_knowledge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION load_knowledge TO everturn_worker;


-- The paths of all documents in the versions that serve.
CREATE OR REPLACE FUNCTION knowledge_paths(p_bundle text, p_names text[], p_signatures text[])
RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT d.path
      FROM served_knowledge(p_bundle, p_names, p_signatures) AS s JOIN knowledge_document d ON d.version = s.id
     ORDER BY d.path
$$;

REVOKE ALL ON FUNCTION knowledge_paths FROM PUBLIC;
GRANT EXECUTE ON FUNCTION knowledge_paths TO everturn_worker;


-- The state of the wanted version of each space; of the newest if the signature is null or unknown.
CREATE OR REPLACE FUNCTION knowledge_status(p_bundle text, p_names text[], p_signatures text[])
RETURNS TABLE (name text, state text, serves boolean, documents integer, error text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT ON (s.name) s.name, s.state,
           EXISTS (SELECT FROM knowledge_space r
                    WHERE r.bundle_id = p_bundle AND r.name = s.name AND r.state = 'ready'),
           s.documents, s.error
      FROM unnest(p_names, p_signatures) AS w (name, signature)
      JOIN knowledge_space s ON s.bundle_id = p_bundle AND s.name = w.name
     ORDER BY s.name, (s.signature = w.signature) DESC NULLS LAST, s.wanted_at DESC
$$;

REVOKE ALL ON FUNCTION knowledge_status FROM PUBLIC;
GRANT EXECUTE ON FUNCTION knowledge_status TO everturn_worker;
