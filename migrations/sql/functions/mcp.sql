-- Who asked to connect an account at this server, for the page on which that person confirms it. Returns no row if the
-- request is unknown or expired, or has another answer than this code; NULL is a refusal. The hash is of a secret of 256
-- bits in the link, which the question of the approval shows.
CREATE OR REPLACE FUNCTION find_mcp_request(
    p_state_hash text, p_bundle text, p_server text, p_code text DEFAULT NULL)
RETURNS TABLE (tenant text, project text, user_id text, title text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT r.tenant, r.project, r.user_id, r.title FROM mcp_request r
     WHERE r.state_hash = p_state_hash AND r.bundle_id = p_bundle AND r.server = p_server
       AND r.expires_at > clock_timestamp()
       AND (r.answered_at IS NULL
            OR r.answer_hash = sha256(convert_to(p_state_hash || COALESCE(p_code, ''), 'UTF8')))
$$;

REVOKE ALL ON FUNCTION find_mcp_request FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_mcp_request TO everturn_ingress;


-- Saves the authorization server's answer to such a request, once: a code, or NULL if the person refused. The code is of
-- no use without the verifier, which only workers can read. A code also settles the other open requests of that person
-- to the server, the latest p_limit of them. Returns whose turns wait for it, and again for the same answer until the
-- request expires, because its caller may have ended before it signalled them. The second statement sees what another
-- caller committed while the first one waited for it.
CREATE OR REPLACE FUNCTION answer_mcp_request(
    p_state_hash text, p_bundle text, p_server text, p_code text, p_issuer text, p_limit integer)
RETURNS TABLE (tenant text, project text, user_id text, conversation_id text, approval_id text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH asked AS (
        SELECT r.* FROM mcp_request r
         WHERE r.state_hash = p_state_hash AND r.bundle_id = p_bundle AND r.server = p_server
           AND r.answered_at IS NULL AND r.expires_at > statement_timestamp()
           FOR UPDATE
    ), settled AS (
        SELECT r.approval_id FROM mcp_request r
          JOIN asked a USING (tenant, project, user_id, bundle_id, server)
         WHERE r.approval_id = a.approval_id
            OR (p_code IS NOT NULL AND r.answered_at IS NULL AND r.expires_at > statement_timestamp())
         ORDER BY r.approval_id <> a.approval_id, r.expires_at DESC LIMIT p_limit
           FOR UPDATE OF r SKIP LOCKED  -- those that are being answered by themselves
    )
    UPDATE mcp_request r SET code = CASE WHEN r.state_hash = p_state_hash THEN p_code END, issuer = p_issuer,
           answered_at = clock_timestamp(),
           answer_hash = sha256(convert_to(p_state_hash || COALESCE(p_code, ''), 'UTF8'))
      FROM settled s WHERE r.approval_id = s.approval_id AND r.answered_at IS NULL;

    SELECT r.tenant, r.project, r.user_id, r.conversation_id, r.approval_id
      FROM mcp_request a JOIN mcp_request r USING (tenant, project, user_id, bundle_id, server, answer_hash)
     WHERE a.state_hash = p_state_hash AND a.bundle_id = p_bundle AND a.server = p_server
       AND a.answer_hash = sha256(convert_to(p_state_hash || COALESCE(p_code, ''), 'UTF8'))
       AND a.expires_at > statement_timestamp()
$$;

REVOKE ALL ON FUNCTION answer_mcp_request FROM PUBLIC;
GRANT EXECUTE ON FUNCTION answer_mcp_request TO everturn_ingress;
