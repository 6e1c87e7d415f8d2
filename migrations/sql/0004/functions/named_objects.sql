-- Keys of a conversation's objects that a row of any conversation names: those that forks share.
CREATE FUNCTION named_objects(p_conversation text) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT a.object_key FROM artifact a
     WHERE a.object_key >= p_conversation || '/' AND a.object_key < p_conversation || '0'
$$;
