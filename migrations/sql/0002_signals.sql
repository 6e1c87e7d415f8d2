-- External events come in as signals.
ALTER TABLE signal DROP CONSTRAINT signal_kind_check;
ALTER TABLE signal ADD CONSTRAINT signal_kind_check CHECK (kind IN ('followup', 'steer', 'cancel', 'event'));
-- No turn_id: an event that came to a conversation at rest; the next turn takes it up, whoever opens that.
ALTER TABLE signal ALTER COLUMN turn_id DROP NOT NULL;
GRANT UPDATE (promoted_to) ON signal TO everturn_ingress;
