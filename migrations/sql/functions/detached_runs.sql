-- The runs of these engines that p_worker watches from now on, for p_hold: its own and, if it takes over, those whose
-- holder has not come back in time; then also overdue runs of any engine. `settled` says that no turn waits for the run
-- any more, because its call has a result or its turn has ended; `overdue` that it should have ended.
CREATE OR REPLACE FUNCTION hold_detached_runs(p_worker text, p_engines text[], p_hold interval, p_limit integer, p_takes_over boolean)
RETURNS TABLE (run_id text, engine text, task text, ended_as text, detail text, age_s double precision, settled boolean,
               overdue boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
BEGIN
    -- A row is written only when half of its time is over.
    UPDATE detached_run r SET holder = p_worker, held_until = clock_timestamp() + p_hold
     WHERE r.run_id IN (
        SELECT d.run_id FROM detached_run d
         WHERE (d.engine = ANY (p_engines) OR d.ends_by <= clock_timestamp())
           AND (p_takes_over AND d.held_until <= clock_timestamp()
                OR d.holder = p_worker AND d.held_until <= clock_timestamp() + p_hold / 2)
         ORDER BY d.held_until LIMIT p_limit FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    SELECT r.run_id, r.engine, r.task, NULLIF(r.ended_as, ''), r.detail,
           extract(epoch FROM clock_timestamp() - r.began_at)::float8,
           EXISTS (SELECT FROM turn t WHERE t.id = r.turn_id AND t.status IN ('completed', 'failed', 'cancelled'))
           OR EXISTS (SELECT FROM tool_effect e
                       WHERE e.turn_id = r.turn_id AND e.call_id = r.call_id AND e.state <> 'intended'),
           r.ends_by <= clock_timestamp()
      FROM detached_run r
     WHERE r.holder = p_worker AND r.held_until > clock_timestamp()
       AND (r.engine = ANY (p_engines) OR r.ends_by <= clock_timestamp())
     ORDER BY r.held_until LIMIT 5 * p_limit;
END
$$;

REVOKE ALL ON FUNCTION hold_detached_runs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hold_detached_runs TO everturn_worker;


-- Records how a run ended, once, and puts the turn that waits for it back into the queue as if its doorbell had just been
-- rung. Returns that doorbell; no row if no turn was woken. Locks the conversation's row first, as park_turn does: the run
-- ends either before the turn is parked, which then isn't, or after, and wakes it.
CREATE OR REPLACE FUNCTION end_detached_run(p_run text, p_ended_as text, p_detail text)
RETURNS TABLE (conversation_id text, lane text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_turn text;
BEGIN
    SELECT r.conversation_id, r.turn_id INTO conversation_id, v_turn FROM detached_run r WHERE r.run_id = p_run;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM conversation c WHERE c.id = end_detached_run.conversation_id FOR NO KEY UPDATE;
    UPDATE detached_run r SET ended_as = p_ended_as, detail = p_detail WHERE r.run_id = p_run AND r.ended_as = '';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE turn t SET status = 'queued', doorbell_at = clock_timestamp(), rings = 1
     WHERE t.id = v_turn AND t.status = 'waiting' RETURNING t.lane INTO lane;
    IF FOUND THEN
        UPDATE conversation c SET state = 'queued' WHERE c.id = end_detached_run.conversation_id;
        RETURN NEXT;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION end_detached_run FROM PUBLIC;
GRANT EXECUTE ON FUNCTION end_detached_run TO everturn_worker;


-- Deletes the row of a run of which nothing is left.
CREATE OR REPLACE FUNCTION remove_detached_run(p_run text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DELETE FROM detached_run r WHERE r.run_id = p_run
$$;

REVOKE ALL ON FUNCTION remove_detached_run FROM PUBLIC;
GRANT EXECUTE ON FUNCTION remove_detached_run TO everturn_worker;


-- Those of these ids of runs that have a row.
CREATE OR REPLACE FUNCTION known_detached_runs(p_runs text[]) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT r.run_id FROM detached_run r WHERE r.run_id = ANY (p_runs)
$$;

REVOKE ALL ON FUNCTION known_detached_runs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION known_detached_runs TO everturn_worker;
