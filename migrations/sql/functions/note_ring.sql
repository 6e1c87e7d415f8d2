-- Sets turn.rung_at when a turn gets its place on the lane. A trigger, so that every way into the queue does so.
CREATE OR REPLACE FUNCTION note_ring() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR OLD.status <> 'queued' OR OLD.doorbell_at IS NULL THEN
        NEW.rung_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;

REVOKE ALL ON FUNCTION note_ring FROM PUBLIC;
