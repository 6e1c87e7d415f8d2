-- Loading a conversation begins at its last summary; the index holds nothing but summaries.
CREATE INDEX block_range_summary ON block (conversation_id, seq) WHERE type = 'conv.range.summary';
-- A plan is asked for by its own id alone, from any later turn.
CREATE INDEX block_plan ON block (conversation_id, seq) WHERE type = 'react.plan';
