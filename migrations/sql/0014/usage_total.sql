-- Usage of rows of usage_event that are gone, as sums without text and without ids of conversations. A trigger adds to
-- them in the transaction that deletes the rows, whether a person, the retention or an operator asked for it.
CREATE TABLE usage_total (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    day date NOT NULL,
    model text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    calls bigint NOT NULL,
    unpriced_calls bigint NOT NULL,
    estimated_calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    PRIMARY KEY (tenant, day, project, user_id, model, role)
);
ALTER TABLE usage_total ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage_total FORCE ROW LEVEL SECURITY;
REVOKE ALL ON usage_total FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON usage_total TO everturn_dispatch;
CREATE POLICY dispatch ON usage_total TO everturn_dispatch USING (true) WITH CHECK (true);
