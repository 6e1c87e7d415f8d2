CREATE TRIGGER usage_event_deleted AFTER DELETE ON usage_event
    REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION add_usage_totals();
