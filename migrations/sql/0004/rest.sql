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

-- Both run with the rights of who calls them: a service sees the rows of its principal only, whatever p_user says, and
-- everturn_dispatch those of the whole project that the transaction names.
CREATE FUNCTION feedback_totals(p_user text, p_from timestamptz, p_to timestamptz)
RETURNS TABLE (conversations bigint, turns bigint, ok bigint, not_ok bigint, neutral bigint, unrated bigint,
               machine_ok bigint, machine_not_ok bigint, machine_neutral bigint, machine_confidence double precision)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT count(DISTINCT f.conversation_id), count(DISTINCT f.turn_id),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'neutral'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction IS NULL),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'neutral'),
           avg(f.confidence) FILTER (WHERE f.origin = 'machine')
      FROM feedback f
     WHERE f.tenant = NULLIF(current_setting('app.tenant', true), '')
       AND f.project = NULLIF(current_setting('app.project', true), '')
       AND (p_user IS NULL OR f.user_id = p_user)
       AND f.ts >= p_from AND f.ts < p_to
$$;
CREATE FUNCTION judged_conversations(
    p_user text, p_from timestamptz, p_to timestamptz, p_before timestamptz, p_before_id text, p_limit integer
) RETURNS TABLE (conversation_id text, user_id text, title text, last_judged_at timestamptz, turns bigint, ok bigint, not_ok bigint, neutral bigint, unrated bigint,
               machine_ok bigint, machine_not_ok bigint, machine_neutral bigint, machine_confidence double precision)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT f.conversation_id, f.user_id, c.title, max(f.ts), count(DISTINCT f.turn_id),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction = 'neutral'),
           count(*) FILTER (WHERE f.origin = 'user' AND f.reaction IS NULL),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'not_ok'),
           count(*) FILTER (WHERE f.origin = 'machine' AND f.reaction = 'neutral'),
           avg(f.confidence) FILTER (WHERE f.origin = 'machine')
      FROM feedback f JOIN conversation c ON c.id = f.conversation_id
     WHERE f.tenant = NULLIF(current_setting('app.tenant', true), '')
       AND f.project = NULLIF(current_setting('app.project', true), '')
       AND (p_user IS NULL OR f.user_id = p_user)
       AND f.ts >= p_from AND f.ts < p_to
     GROUP BY f.conversation_id, f.user_id, c.title
    HAVING p_before IS NULL OR (max(f.ts), f.conversation_id) < (p_before, p_before_id)
     ORDER BY max(f.ts) DESC, f.conversation_id DESC LIMIT p_limit
$$;
REVOKE ALL ON FUNCTION feedback_totals, judged_conversations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION feedback_totals, judged_conversations TO everturn_ingress, everturn_dispatch;
