-- Erases a conversation as its owner would, and returns the owner, so that its objects can be deleted in that name.
-- Returns no row if there was activity meanwhile or another transaction has locked it.
CREATE OR REPLACE FUNCTION expire_conversation(p_conversation text, p_age interval)
RETURNS TABLE (tenant text, project text, user_id text, object_keys text[], removed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_due conversation;
BEGIN
    SELECT c.* INTO v_due FROM conversation c WHERE c.id = p_conversation FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR NOT is_expired(v_due, find_expiry(p_age)) THEN
        RETURN;
    END IF;
    PERFORM set_config('app.tenant', v_due.tenant, true), set_config('app.project', v_due.project, true),
            set_config('app.user_id', v_due.user_id, true);
    RETURN QUERY SELECT v_due.tenant, v_due.project, v_due.user_id, e.object_keys,
                        (SELECT sum(n) FROM unnest(e.removed) AS n)::bigint
                   FROM erase_conversation(p_conversation) AS e;
    PERFORM set_config('app.tenant', '', true), set_config('app.project', '', true), set_config('app.user_id', '', true);
END
$$;

REVOKE ALL ON FUNCTION expire_conversation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION expire_conversation TO everturn_worker;
