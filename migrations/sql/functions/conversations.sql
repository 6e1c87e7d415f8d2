-- One conversation, with the id of the last committed event, the ordinal of the newest turn, and the turn that has not
-- ended. No row if the principal has no such conversation. It sets the principal of the transaction itself, so a caller
-- that reads nothing else makes one call. Runs as the caller, under its policies.
CREATE OR REPLACE FUNCTION load_conversation(p_tenant text, p_project text, p_user_id text, p_conversation text)
RETURNS TABLE (id text, title text, state text, bundle_id text, archived boolean, created_at timestamptz,
               last_activity_at timestamptz, event_cursor text, newest integer, open_turn_id text)
LANGUAGE plpgsql SECURITY INVOKER AS $$
BEGIN
    PERFORM set_config('app.tenant', p_tenant, true), set_config('app.project', p_project, true),
            set_config('app.user_id', p_user_id, true);
    RETURN QUERY
    SELECT c.id, c.title, c.state, c.bundle_id, c.archived, c.created_at, c.last_activity_at, c.event_cursor,
           (SELECT max(t.ordinal) FROM turn t WHERE t.conversation_id = c.id),
           (SELECT t.id FROM turn t
             WHERE t.conversation_id = c.id AND t.status IN ('queued', 'running', 'waiting'))
      FROM conversation c WHERE c.id = p_conversation;
END
$$;

REVOKE ALL ON FUNCTION load_conversation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION load_conversation TO everturn_ingress, everturn_worker;
