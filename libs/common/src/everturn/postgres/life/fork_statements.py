"""The statements of a fork. Rows are copied by the database; only what holds ids goes through here."""

# Against erasure, and not against appends: those change no key.
LOCK = "SELECT true FROM conversation WHERE id = $1 FOR KEY SHARE"
LAST_ENDED = """
SELECT id, ordinal, status FROM turn
 WHERE conversation_id = $1 AND status IN ('completed', 'failed', 'cancelled') ORDER BY ordinal DESC LIMIT 1
"""
NAMED_TURN = "SELECT id, ordinal, status FROM turn WHERE conversation_id = $1 AND id = $2"
TURNS = "SELECT id FROM turn WHERE conversation_id = $1 AND ordinal <= $2 ORDER BY ordinal"
LAST_SEQ = """
SELECT COALESCE((SELECT n.first_seq FROM turn n
                  WHERE n.conversation_id = $1 AND n.ordinal > $2 AND n.first_seq IS NOT NULL
                  ORDER BY n.ordinal LIMIT 1), next_seq) - 1
  FROM conversation WHERE id = $1
"""
REQUEST = "SELECT request FROM turn WHERE id = $1"
ARTIFACT_IDS = "SELECT id FROM artifact WHERE conversation_id = $1 AND (turn_id = ANY($2) OR id = ANY($3))"
SIGNAL_IDS = """
SELECT id FROM signal
 WHERE conversation_id = $1 AND state <> 'accepted' AND (turn_id = ANY($2) OR turn_id IS NULL AND promoted_to = ANY($2))
"""
CREATE = """
INSERT INTO conversation (id, tenant, project, user_id, bundle_id, title)
SELECT $2, tenant, project, user_id, bundle_id, COALESCE($3, title) FROM conversation WHERE id = $1
"""
BLOCKS = """
SELECT * FROM (
       SELECT turn_id, round, type, author, ref, call_id, body, ts, ts_first, seq,
              COALESCE(sum(octet_length(body))
                       OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
         FROM (SELECT * FROM block WHERE conversation_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4) AS near
       ) AS page
 WHERE bytes_before < $5 ORDER BY seq
"""
BLOCK_COLUMNS = ("turn_id", "round", "type", "ref", "call_id", "body", "ts")
APPEND = "SELECT append_fork_blocks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
# The events of an ended turn were told where it ran, and its model calls are on the ledger there. Its texts are indexed
# anew, for the fork.
COPY_TURN = """
INSERT INTO turn (id, conversation_id, tenant, project, user_id, ordinal, first_seq, status, lane, roles, request,
                  outcome, error, announced_at, created_at, started_at, ended_at)
SELECT $2, $3, tenant, project, user_id, ordinal, first_seq, status, lane, roles, $4,
       outcome, error, clock_timestamp(), created_at, started_at, ended_at
  FROM turn WHERE id = $1
"""
ARTIFACTS_OF_SOURCE = "SELECT id FROM artifact WHERE conversation_id = $1 ORDER BY id"
ARTIFACTS = "SELECT id, turn_id, ref, rn, path FROM artifact WHERE id = ANY($1) ORDER BY id"
COPY_ARTIFACTS = """
INSERT INTO artifact (id, conversation_id, tenant, project, user_id, turn_id, ref, rn, kind, filename, path, mime, size,
                      sha256, object_key, visibility, verdict, description, created_at, removed, revoked_at)
SELECT n.id, $1, a.tenant, a.project, a.user_id, n.turn_id, n.ref, n.rn, a.kind, a.filename, n.path, a.mime, a.size,
       a.sha256, a.object_key, a.visibility, a.verdict, a.description, a.created_at, a.removed,
       a.revoked_at
  FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
       AS n (old, id, turn_id, ref, rn, path)
  JOIN artifact a ON a.id = n.old
"""
SIGNALS_OF_SOURCE = "SELECT id FROM signal WHERE conversation_id = $1 ORDER BY id"
SIGNAL = "SELECT turn_id, promoted_to, payload FROM signal WHERE id = $1"
COPY_SIGNAL = """
INSERT INTO signal (id, conversation_id, tenant, project, user_id, turn_id, inbox_seq, kind, payload, state, round,
                    promoted_to, created_at)
SELECT $2, $3, tenant, project, user_id, $4, inbox_seq, kind, $6, state, round, $5, created_at
  FROM signal WHERE id = $1
"""
SOURCES = "SELECT sid, key, url FROM source WHERE conversation_id = $1 ORDER BY sid"
COPY_SOURCES = "SELECT copy_fork_sources($1, $2, $3, $4, $5)"
