-- Copies the source pool between two conversations of the principal of the transaction, into an empty one. Keys and
-- addresses of files contain ids, so the caller passes new ones; the texts never leave the database.
CREATE OR REPLACE FUNCTION copy_fork_sources(p_source text, p_fork text, p_sids integer[], p_keys text[], p_urls text[])
RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO source (conversation_id, sid, tenant, project, user_id, key, title, url, source_type,
                        objective_relevance, published_time_iso, favicon_url, mime, snippet, text_chars, text, used)
    SELECT p_fork, s.sid, f.tenant, f.project, f.user_id, n.key, s.title, n.url, s.source_type,
           s.objective_relevance, s.published_time_iso, s.favicon_url, s.mime, s.snippet, s.text_chars, s.text, s.used
      FROM unnest(p_sids, p_keys, p_urls) AS n (sid, key, url)
      JOIN source s ON s.conversation_id = p_source AND s.sid = n.sid
      JOIN conversation f ON f.id = p_fork AND f.fence = 0
     WHERE (s.tenant, s.project, s.user_id) = (f.tenant, f.project, f.user_id)
       AND f.tenant = NULLIF(current_setting('app.tenant', true), '')
       AND f.project = NULLIF(current_setting('app.project', true), '')
       AND f.user_id = NULLIF(current_setting('app.user_id', true), '')
       AND NOT EXISTS (SELECT FROM source o WHERE o.conversation_id = p_fork)
$$;

REVOKE ALL ON FUNCTION copy_fork_sources FROM PUBLIC;
GRANT EXECUTE ON FUNCTION copy_fork_sources TO everturn_ingress;
