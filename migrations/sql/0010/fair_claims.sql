-- An extra lease is one taken beyond the ordinary slots of the workers; how many a group may have depends on what is free.
ALTER TABLE lease ADD COLUMN extra boolean NOT NULL DEFAULT false;
-- The index of running turns comes with 0013, beside the writers.
