-- What a person has forgotten by hand: a turn that began before may not write it again. `*` stands for everything.
-- Times are the database's, as turn.started_at is; rows older than any turn can be are removed with the next one.
CREATE TABLE forgotten_memory (
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    forgotten_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, project, user_id, id)
);
REVOKE ALL ON forgotten_memory FROM PUBLIC;
ALTER TABLE forgotten_memory ENABLE ROW LEVEL SECURITY;
ALTER TABLE forgotten_memory FORCE ROW LEVEL SECURITY;
CREATE POLICY principal ON forgotten_memory TO everturn_ingress, everturn_worker
    USING (tenant = NULLIF(current_setting('app.tenant', true), '')
           AND project = NULLIF(current_setting('app.project', true), '')
           AND user_id = NULLIF(current_setting('app.user_id', true), ''))
    WITH CHECK (tenant = NULLIF(current_setting('app.tenant', true), '')
                AND project = NULLIF(current_setting('app.project', true), '')
                AND user_id = NULLIF(current_setting('app.user_id', true), ''));
GRANT SELECT, INSERT, DELETE ON forgotten_memory TO everturn_ingress;
GRANT UPDATE (forgotten_at) ON forgotten_memory TO everturn_ingress;
GRANT SELECT ON forgotten_memory TO everturn_worker;

GRANT SELECT, DELETE ON user_memory TO everturn_ingress;
CREATE INDEX user_memory_newest ON user_memory (tenant, project, user_id, updated_at DESC, id DESC);

-- Searching over REST: the function takes the person, as the worker's search does.
SET LOCAL ROLE everturn_dispatch;
GRANT EXECUTE ON FUNCTION search_snippets TO everturn_ingress;
RESET ROLE;

-- A report asks for the judgements of a time, of a person or of a whole project.
CREATE INDEX feedback_of_person_by_time ON feedback (tenant, project, user_id, ts);
CREATE INDEX feedback_of_project_by_time ON feedback (tenant, project, ts);
