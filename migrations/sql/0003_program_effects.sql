-- Calls that programs make have rows of their own in the ledger: which of several equal calls of a run it is, and what it
-- gave, so that a run that is repeated gets the same answer. Rows of the loop's calls have neither.
ALTER TABLE tool_effect
    ADD COLUMN occurrence integer NOT NULL DEFAULT 1 CHECK (occurrence > 0),
    ADD COLUMN reply text NOT NULL DEFAULT '' CHECK (octet_length(reply) <= 65536);

GRANT UPDATE (state, reply) ON tool_effect TO everturn_worker;
