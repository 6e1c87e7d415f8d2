-- How long a turn was held by workers, under all of its leases that have ended. The time limit of a turn counts this and
-- the age of its present lease: not the time in the queue, without any worker, or with a person who is asked.
ALTER TABLE lease ADD COLUMN claimed_at timestamptz NOT NULL DEFAULT clock_timestamp();
ALTER TABLE turn ADD COLUMN leased_s double precision NOT NULL DEFAULT 0;
GRANT UPDATE (leased_s) ON turn TO everturn_dispatch;
