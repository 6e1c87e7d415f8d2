-- Credentials. They are asked for before it is known who asks, so no policy can name a principal: the services have no
-- rights on these tables and ask through functions, which see a row of one key or one person at a time. An operator
-- (the migrating role, as everturn_dispatch) makes and revokes them.
CREATE TABLE api_key (
    id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[0-9a-f]{16}$'),
    secret_hash text COLLATE "C" NOT NULL CHECK (secret_hash ~ '^[0-9a-f]{64}$'),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    roles text[] NOT NULL,
    label text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_on date
);
CREATE INDEX api_key_newest ON api_key (tenant, created_at DESC);

-- tenant and project are '*' for all; no name of either can be that.
CREATE TABLE credential_cutoff (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    not_before timestamptz NOT NULL,
    PRIMARY KEY (tenant, project, user_id)
);

DO $$
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['api_key', 'credential_cutoff'] LOOP
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC', v_table);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format('CREATE POLICY dispatch ON %I TO everturn_dispatch USING (true) WITH CHECK (true)', v_table);
    END LOOP;
END
$$;
GRANT SELECT, INSERT ON api_key, credential_cutoff TO everturn_dispatch;
GRANT UPDATE (revoked_at, last_used_on) ON api_key TO everturn_dispatch;
GRANT UPDATE (not_before) ON credential_cutoff TO everturn_dispatch;
