-- Totals of feedback of everyone in the project of the transaction. The ingress decides who may ask: admins.
CREATE OR REPLACE FUNCTION project_feedback_totals(p_from timestamptz, p_to timestamptz)
RETURNS TABLE (conversations bigint, turns bigint, ok bigint, not_ok bigint, neutral bigint, unrated bigint,
               machine_ok bigint, machine_not_ok bigint, machine_neutral bigint, machine_confidence double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM feedback_totals(NULL, p_from, p_to)
$$;

REVOKE ALL ON FUNCTION project_feedback_totals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION project_feedback_totals TO everturn_ingress;
