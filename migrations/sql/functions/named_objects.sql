-- Keys of a conversation's objects that a row of any conversation still names: objects that forks share.
CREATE OR REPLACE FUNCTION named_objects(p_conversation text) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT a.object_key FROM artifact a
     WHERE a.object_key >= p_conversation || '/' AND a.object_key < p_conversation || '0'
$$;

REVOKE ALL ON FUNCTION named_objects FROM PUBLIC;
GRANT EXECUTE ON FUNCTION named_objects TO everturn_ingress;
