-- What memory search finds: the embedded texts of turns. Filled in the background; turn.indexed_at says which are done.
CREATE EXTENSION IF NOT EXISTS vector;
