-- External events come in as signals.
ALTER TABLE signal DROP CONSTRAINT signal_kind_check;
ALTER TABLE signal ADD CONSTRAINT signal_kind_check CHECK (kind IN ('followup', 'steer', 'cancel', 'event'));
