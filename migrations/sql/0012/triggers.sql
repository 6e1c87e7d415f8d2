CREATE TRIGGER lease_ends BEFORE DELETE ON lease FOR EACH ROW EXECUTE FUNCTION count_leased_time();
CREATE TRIGGER lease_changes_hands BEFORE UPDATE ON lease
    FOR EACH ROW WHEN (NEW.fence <> OLD.fence) EXECUTE FUNCTION count_leased_time();
