-- Loading a conversation begins at its last summary; the index holds nothing but summaries.
CREATE INDEX block_range_summary ON block (conversation_id, seq) WHERE type = 'conv.range.summary';
