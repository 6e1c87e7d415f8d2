-- Credentials of this person issued before this time are rejected.
CREATE OR REPLACE FUNCTION find_credential_cutoff(p_tenant text, p_project text, p_user text) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT max(not_before) FROM credential_cutoff
     WHERE user_id = p_user AND tenant IN (p_tenant, '*') AND project IN (p_project, '*')
$$;

REVOKE ALL ON FUNCTION find_credential_cutoff FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_credential_cutoff TO everturn_ingress;
