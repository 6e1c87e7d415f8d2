-- A file that a later scan found infected: its row stays and says so, its object is deleted. The services have no right
-- to do that; an operator (the migrating role, as everturn_dispatch) does. All rows of one object share its fate.
ALTER TABLE artifact ADD COLUMN revoked_at timestamptz;
GRANT UPDATE (verdict, revoked_at) ON artifact TO everturn_dispatch;
