-- Triggers, not parts of the functions that write these tables: so they hold for every version of every service.
-- The role that creates a trigger must be allowed to call its function, but only at that moment.
SET LOCAL ROLE everturn_dispatch;
GRANT EXECUTE ON FUNCTION count_leased_time, add_usage_totals TO SESSION_USER;
RESET ROLE;

CREATE TRIGGER turn_rung BEFORE INSERT OR UPDATE OF status, doorbell_at ON turn FOR EACH ROW
    WHEN (NEW.status = 'queued' AND NEW.doorbell_at IS NOT NULL) EXECUTE FUNCTION note_ring();
CREATE TRIGGER lease_ends BEFORE DELETE ON lease FOR EACH ROW EXECUTE FUNCTION count_leased_time();
CREATE TRIGGER lease_changes_hands BEFORE UPDATE ON lease
    FOR EACH ROW WHEN (NEW.fence <> OLD.fence) EXECUTE FUNCTION count_leased_time();
CREATE TRIGGER usage_event_deleted AFTER DELETE ON usage_event
    REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION add_usage_totals();

SET LOCAL ROLE everturn_dispatch;
REVOKE EXECUTE ON FUNCTION count_leased_time, add_usage_totals FROM SESSION_USER;
RESET ROLE;
