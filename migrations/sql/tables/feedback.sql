-- The column "told" is true when a block shows this feedback to the model.
CREATE TABLE feedback (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation_id text COLLATE "C" NOT NULL REFERENCES conversation (id),
    tenant text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL REFERENCES turn (id),
    origin text NOT NULL CHECK (origin IN ('user', 'machine')),
    reaction text CHECK (reaction IN ('ok', 'not_ok', 'neutral')),
    text text NOT NULL,
    confidence double precision CHECK (confidence BETWEEN 0 AND 1),
    ts timestamptz NOT NULL,
    told boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX feedback_one_of_user ON feedback (turn_id) WHERE origin = 'user';
CREATE INDEX feedback_of_conversation ON feedback (conversation_id);
CREATE INDEX feedback_of_turn ON feedback (turn_id);
-- A report covers a period, of one person or of a whole project.
CREATE INDEX feedback_of_person_by_time ON feedback (tenant, project, user_id, ts);
CREATE INDEX feedback_of_project_by_time ON feedback (tenant, project, ts);
