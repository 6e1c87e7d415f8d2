"""Rows inserted into the platform's database before a test, which would take a person days to create."""

from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

_ADD_SOURCE = """
INSERT INTO source (conversation_id, sid, tenant, project, user_id, key, title, url, source_type, published_time_iso)
SELECT id, {sid}, tenant, project, user_id, '{url}', '{title}', '{url}', 'web', '2026-01-15T00:00:00Z'
  FROM conversation WHERE id = '{conversation_id}';
"""

# Each copy has ids of its own, and the words `NUMBER` become the number of its turn. No copy waits for an index, which
# would keep the turns of other tests waiting for theirs.
_REPEAT_TURN = """
CREATE TEMP TABLE copy AS
SELECT t.id AS first_id, left(t.id, -6) || 'f' || lpad(to_hex(n), 5, '0') AS id, n,
       (SELECT count(*) FROM block b WHERE b.conversation_id = t.conversation_id) AS blocks
  FROM turn t, generate_series(1, {count} - 1) AS n WHERE t.conversation_id = '{conversation_id}';
INSERT INTO turn
SELECT (jsonb_populate_record(t, jsonb_build_object('id', c.id, 'ordinal', 1 + c.n,
        'first_seq', t.first_seq + c.n * c.blocks, 'indexed_at', clock_timestamp(),
        'request', replace(t.request, 'NUMBER', (c.n + 1)::text)))).*
  FROM turn t JOIN copy c ON c.first_id = t.id;
INSERT INTO block
SELECT (jsonb_populate_record(b, jsonb_build_object('seq', b.seq + c.n * c.blocks, 'turn_id', c.id,
        'ref', replace(b.ref, c.first_id, c.id),
        'body', replace(replace(b.body, c.first_id, c.id), 'NUMBER', (c.n + 1)::text)))).*
  FROM block b JOIN copy c ON c.first_id = b.turn_id;
UPDATE conversation SET next_seq = 1 + (SELECT max(seq) FROM block WHERE conversation_id = '{conversation_id}')
 WHERE id = '{conversation_id}';
"""


def add_source(platform: Platform, conversation_id: str, *, sid: int, title: str, url: str) -> None:
    """A page that the agent has found in this conversation."""
    platform.postgres.run_sql(
        _ADD_SOURCE.format(conversation_id=conversation_id, sid=sid, title=title, url=url), database=DATABASE
    )


def repeat_turn(platform: Platform, conversation_id: str, *, count: int) -> None:
    """A conversation with one ended turn gets `count` of them."""
    platform.postgres.run_sql(_REPEAT_TURN.format(conversation_id=conversation_id, count=count), database=DATABASE)
