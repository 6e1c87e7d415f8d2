-- Which of these object keys no row of any tenant names: no artifact has the file, no turn has the manifest of a round.
-- While a conversation has a lease, none of its objects is an orphan: a worker saves an object first and then commits
-- its row under its fence, even under an expired lease that nobody else has taken.
-- Reveals only which of the caller's own keys are unknown.
CREATE OR REPLACE FUNCTION find_orphan_objects(p_keys text[]) RETURNS TABLE (key text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT asked FROM unnest(p_keys[1:1000]) AS asked
     WHERE NOT EXISTS (SELECT FROM lease l WHERE l.conversation_id = split_part(asked, '/', 1))
       AND NOT EXISTS (SELECT FROM artifact a WHERE a.object_key = asked)
       AND NOT EXISTS (
        SELECT FROM turn t
         WHERE split_part(asked, '/', 2) = 'manifests'
           AND t.id = split_part(split_part(asked, '/', 3), '.', 1)
           AND t.conversation_id = split_part(asked, '/', 1))
$$;

REVOKE ALL ON FUNCTION find_orphan_objects FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_orphan_objects TO everturn_ingress, everturn_worker;
