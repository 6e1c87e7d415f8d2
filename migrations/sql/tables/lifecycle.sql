-- One row: after how many days without activity the operator lets conversations expire. Workers may ask for more days
-- but never for less, and without a number nothing expires. Only the migrating role writes it, so a worker's role alone
-- can erase no conversation before its time.
CREATE TABLE retention_limit (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    min_days integer CHECK (min_days >= 1)
);
INSERT INTO retention_limit (min_days) VALUES (NULL);
