-- Claims the collection that has waited longest for its index: its documents have changed, or the encoder has. Returns
-- its owner. A claimed collection is due again after 60 s, then 120 and so on up to an hour, in case its worker dies or
-- fails: the lease of the build keeps a second worker away from one that takes longer.
CREATE OR REPLACE FUNCTION claim_collection(p_encoder text)
RETURNS TABLE (id text, tenant text, project text, user_id text, revision bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH due AS (
        SELECT c.id FROM collection c
         WHERE (c.revision > c.built_revision OR c.built_encoder IS DISTINCT FROM p_encoder AND c.revision > 0)
           AND c.due_at <= clock_timestamp()
         ORDER BY c.due_at LIMIT 1
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE collection c
       SET tries = c.tries + 1,
           due_at = clock_timestamp() + LEAST(3600, 60 * 2 ^ LEAST(c.tries, 6)) * interval '1 s'
      FROM due WHERE c.id = due.id
    RETURNING c.id, c.tenant, c.project, c.user_id, c.revision
$$;

REVOKE ALL ON FUNCTION claim_collection FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_collection TO everturn_worker;


-- Deletes from one version what is no longer a document of the collection: a document can be deleted while it is
-- encoded. A builder calls it after its last document; what is deleted later is deleted from this version as well.
CREATE OR REPLACE FUNCTION prune_collection(p_id text, p_signature text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DELETE FROM knowledge_document d USING knowledge_space s
     WHERE s.bundle_id = '/collections' AND s.name = p_id AND s.signature = p_signature AND d.version = s.id
       AND NOT EXISTS (SELECT FROM collection_document c
                        WHERE c.collection_id = p_id AND p_id || '/' || c.name = d.path AND c.sha256 = d.digest)
$$;

REVOKE ALL ON FUNCTION prune_collection FROM PUBLIC;
GRANT EXECUTE ON FUNCTION prune_collection TO everturn_worker;


-- What was deleted or replaced can't be found any more, from this moment on.
CREATE OR REPLACE FUNCTION forget_collection_document() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    DELETE FROM knowledge_document d USING knowledge_space s
     WHERE s.bundle_id = '/collections' AND s.name = OLD.collection_id AND s.wanted_at > '-infinity'
       AND d.version = s.id AND d.path = OLD.collection_id || '/' || OLD.name AND d.digest = OLD.sha256;
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION forget_collection_document FROM PUBLIC;


-- The versions of a deleted collection don't serve any more; workers delete them in batches.
CREATE OR REPLACE FUNCTION forget_collection() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE knowledge_space s
       SET wanted_at = '-infinity', state = 'building', holder = NULL, lease_until = NULL
     WHERE s.bundle_id = '/collections' AND s.name = OLD.id;
    RETURN OLD;
END
$$;

REVOKE ALL ON FUNCTION forget_collection FROM PUBLIC;
