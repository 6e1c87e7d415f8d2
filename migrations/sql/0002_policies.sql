-- The tables of this migration belong to principals as those of the first one do.
DO $$
DECLARE
    v_table text;
    v_principal constant text :=
        'tenant = NULLIF(current_setting(''app.tenant'', true), '''')'
        ' AND project = NULLIF(current_setting(''app.project'', true), '''')'
        ' AND user_id = NULLIF(current_setting(''app.user_id'', true), '''')';
BEGIN
    FOREACH v_table IN ARRAY ARRAY['source', 'snippet', 'user_memory'] LOOP
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC', v_table);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format('CREATE POLICY principal ON %I TO everturn_ingress, everturn_worker USING (%s) WITH CHECK (%s)',
                       v_table, v_principal, v_principal);
        EXECUTE format('CREATE POLICY dispatch ON %I TO everturn_dispatch USING (true) WITH CHECK (true)', v_table);
    END LOOP;
END
$$;
