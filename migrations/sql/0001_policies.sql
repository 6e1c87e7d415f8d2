-- Every row belongs to a principal. The services see the rows of the principal that the transaction names and no
-- others; without one they see nothing. everturn_dispatch sees all rows, and is nobody but the definer functions.
DO $$
DECLARE
    v_table text;
    v_principal constant text :=
        'tenant = NULLIF(current_setting(''app.tenant'', true), '''')'
        ' AND project = NULLIF(current_setting(''app.project'', true), '''')'
        ' AND user_id = NULLIF(current_setting(''app.user_id'', true), '''')';
BEGIN
    FOREACH v_table IN ARRAY ARRAY['conversation', 'lease', 'turn', 'block', 'artifact', 'signal', 'feedback',
                                   'tool_effect', 'usage_event', 'idempotency'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format('CREATE POLICY principal ON %I TO everturn_ingress, everturn_worker USING (%s) WITH CHECK (%s)',
                       v_table, v_principal, v_principal);
        EXECUTE format('CREATE POLICY dispatch ON %I TO everturn_dispatch USING (true) WITH CHECK (true)', v_table);
    END LOOP;
END
$$;
