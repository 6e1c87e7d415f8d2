-- When the turn's doorbell was rung first since it waits: its place on the lane. doorbell_at moves with every later ring.
-- A trigger keeps it, so that workers of the version before, and all ways into the queue, do so too.
ALTER TABLE turn ADD COLUMN rung_at timestamptz;
CREATE FUNCTION note_ring() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR OLD.status <> 'queued' OR OLD.doorbell_at IS NULL THEN
        NEW.rung_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION note_ring FROM PUBLIC;
CREATE TRIGGER turn_rung BEFORE INSERT OR UPDATE OF status, doorbell_at ON turn FOR EACH ROW
    WHEN (NEW.status = 'queued' AND NEW.doorbell_at IS NOT NULL) EXECUTE FUNCTION note_ring();
CREATE INDEX turn_on_lane ON turn (lane, rung_at, id) WHERE status = 'queued' AND rung_at IS NOT NULL;

-- Those that wait now are told by their last ring. Only everturn_dispatch sees all rows.
GRANT UPDATE (rung_at) ON turn TO everturn_dispatch;
SET LOCAL ROLE everturn_dispatch;
UPDATE turn SET rung_at = doorbell_at WHERE status = 'queued' AND doorbell_at IS NOT NULL;
RESET ROLE;
REVOKE UPDATE (rung_at) ON turn FROM everturn_dispatch;
