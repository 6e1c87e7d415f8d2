-- Which of these object keys no row of any tenant names: no artifact has the file, no turn the manifest of a round.
-- While somebody has a lease on the conversation, none of it is called an orphan: a worker saves an object first and
-- commits its row under its fence, also under a lease that has run out and that nobody else has taken.
-- It tells nothing but which of the caller's own keys are unknown.
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
