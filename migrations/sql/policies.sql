-- Every row belongs to a principal. Services see the rows of the principal that the transaction names and no others;
-- without one they see none. everturn_dispatch sees all rows; nobody connects as it, only its functions run as it. Its
-- policy is missing where none of its functions needs the table. FORCE applies the policies to the tables' owner as
-- well.
DO $$
DECLARE
    v_table text;
    v_principal constant text :=
        'tenant = NULLIF(current_setting(''app.tenant'', true), '''')'
        ' AND project = NULLIF(current_setting(''app.project'', true), '''')'
        ' AND user_id = NULLIF(current_setting(''app.user_id'', true), '''')';
BEGIN
    FOREACH v_table IN ARRAY ARRAY[
        'approval', 'artifact', 'block', 'conversation', 'feedback', 'forgotten_memory', 'idempotency', 'lease',
        'signal', 'snippet', 'source', 'tool_effect', 'turn', 'usage_event', 'user_memory'] LOOP
        EXECUTE format('CREATE POLICY principal ON %I TO everturn_ingress, everturn_worker USING (%s) WITH CHECK (%s)',
                       v_table, v_principal, v_principal);
    END LOOP;
    FOREACH v_table IN ARRAY ARRAY[
        'api_key', 'approval', 'artifact', 'block', 'conversation', 'credential_cutoff', 'feedback', 'idempotency',
        'lease', 'signal', 'snippet', 'source', 'tool_effect', 'turn', 'usage_event', 'usage_total', 'user_memory'] LOOP
        EXECUTE format('CREATE POLICY dispatch ON %I TO everturn_dispatch USING (true) WITH CHECK (true)', v_table);
    END LOOP;
    FOREACH v_table IN ARRAY ARRAY[
        'api_key', 'approval', 'artifact', 'block', 'conversation', 'credential_cutoff', 'feedback', 'forgotten_memory',
        'idempotency', 'lease', 'retention_limit', 'signal', 'snippet', 'source', 'tool_effect', 'turn', 'usage_event',
        'usage_total', 'user_memory'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', v_table);
    END LOOP;
END
$$;

-- The limit of the retention belongs to no principal.
CREATE POLICY retention_limit_owner ON retention_limit TO everturn_owner USING (true) WITH CHECK (true);
CREATE POLICY retention_limit_dispatch ON retention_limit FOR SELECT TO everturn_dispatch USING (true);
