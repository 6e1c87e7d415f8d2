-- A fork shares objects: whether a row of any conversation names one is asked at every erasure.
CREATE INDEX artifact_by_object ON artifact (object_key);

GRANT INSERT ON block, source TO everturn_dispatch;
GRANT UPDATE (next_seq, last_hash) ON conversation TO everturn_dispatch;
