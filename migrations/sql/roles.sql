-- The roles that tables and policies name. An operator (or the embedded server's start) creates them first; if the
-- migrating role may create roles, missing ones are created here. None of them may bypass row-level security.
DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['everturn_dispatch', 'everturn_ingress', 'everturn_worker'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = v_role) THEN
            IF NOT (SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                RAISE EXCEPTION 'The role % is missing, and % may not create it.', v_role, current_user
                    USING HINT = 'Create the roles as docs/subsystems/database-roles.md says, then migrate again.';
            END IF;
            EXECUTE format('CREATE ROLE %I %s NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE', v_role,
                           CASE v_role WHEN 'everturn_dispatch' THEN 'NOLOGIN' ELSE 'LOGIN' END);
        END IF;
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = v_role AND (rolsuper OR rolbypassrls)) THEN
            RAISE EXCEPTION 'The role % is a superuser or may bypass row-level security, which breaks tenant isolation.',
                v_role;
        END IF;
    END LOOP;
    IF NOT pg_has_role(current_user, 'everturn_dispatch', 'SET') THEN
        BEGIN
            EXECUTE format('GRANT everturn_dispatch TO %I WITH INHERIT FALSE, SET TRUE', current_user);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION '% can''t become everturn_dispatch, which must own the dispatch functions.', current_user
                USING HINT = format('As a superuser: GRANT everturn_dispatch TO %I WITH INHERIT FALSE, SET TRUE',
                                    current_user);
        END;
    END IF;
END
$$;

GRANT USAGE ON SCHEMA public TO everturn_ingress, everturn_worker, everturn_dispatch;
