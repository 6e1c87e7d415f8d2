"""Loads the state of a turn from its rows, for an operator."""

from everturn.core.errors import NotFound
from everturn.postgres.pool import Database
from everturn.turns.explaining import LastBlock, OpenCall, OpenQuestion, TurnState, WaitedRun

MAX_LISTED = 20
"""Open calls, detached runs and questions that are listed."""

_ID = """
SELECT id FROM turn WHERE id = $1
UNION ALL (SELECT id FROM turn WHERE conversation_id = $1 ORDER BY ordinal DESC LIMIT 1)
"""
_TURN = """
SELECT t.id, t.conversation_id, t.tenant, t.project, t.user_id, t.status, t.lane, t.attempt, t.outcome,
       concat_ws(' ', t.error::jsonb ->> 'title', t.error::jsonb ->> 'detail') AS error,
       t.created_at, t.started_at, t.ended_at, t.announced_at, t.rung_at, t.leased_s,
       l.owner, l.fence, extract(epoch FROM clock_timestamp() - l.claimed_at)::float8 AS held_s,
       extract(epoch FROM l.expires_at - clock_timestamp())::float8 AS expires_in_s,
       (SELECT count(*) FROM signal s WHERE s.turn_id = t.id AND s.state = 'accepted') AS signals,
       CASE WHEN t.status = 'queued' THEN (
           SELECT count(*) FROM turn o WHERE o.status = 'queued' AND o.lane = t.lane AND o.rung_at IS NOT NULL
              AND (t.rung_at IS NULL OR (o.rung_at, o.id) < (t.rung_at, t.id))
       ) END AS ahead,
       (SELECT count(*) FROM turn o WHERE o.status = 'running' AND o.tenant = t.tenant AND o.user_id = t.user_id)
           AS running_of_user,
       (SELECT count(*) FROM turn o WHERE o.status = 'running' AND o.tenant = t.tenant) AS running_of_tenant,
       (SELECT count(*) FROM turn o WHERE o.status = 'running') AS running
  FROM turn t LEFT JOIN lease l USING (conversation_id)
 WHERE t.id = $1
"""
_LAST_BLOCK = """
SELECT type, round, seq, ts, extract(epoch FROM clock_timestamp() - ts::timestamptz)::float8 AS age_s
  FROM block WHERE conversation_id = $1 AND turn_id = $2 ORDER BY seq DESC LIMIT 1
"""
_CALLS = """
SELECT tool_id, call_id, effect FROM tool_effect WHERE turn_id = $1 AND state = 'intended' ORDER BY call_id LIMIT $2
"""
_RUNS = """
SELECT call_id, engine, task, starts, holder, NULLIF(ended_as, '') AS ended_as, ends_by
  FROM detached_run WHERE turn_id = $1 ORDER BY call_id LIMIT $2
"""
_QUESTIONS = """
SELECT tool_id, call_id, expires_at FROM approval WHERE turn_id = $1 AND state = 'pending' ORDER BY expires_at LIMIT $2
"""


async def load_turn_state(database: Database, turn_or_conversation: str) -> TurnState:
    """The state of the turn with this id, or of the newest turn of this conversation.

    Needs the migrating role, which becomes everturn_dispatch. Raises NotFound.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL ROLE everturn_dispatch")
        turn_id = await connection.fetchval(_ID, turn_or_conversation)
        row = await connection.fetchrow(_TURN, turn_id)
        if row is None:
            raise NotFound(turn_or_conversation)
        block = await connection.fetchrow(_LAST_BLOCK, row["conversation_id"], turn_id)
        calls = await connection.fetch(_CALLS, turn_id, MAX_LISTED)
        questions = await connection.fetch(_QUESTIONS, turn_id, MAX_LISTED)
        runs = await connection.fetch(_RUNS, turn_id, MAX_LISTED)
    return TurnState(
        **row,
        block=LastBlock(**block) if block is not None else None,
        calls=tuple(OpenCall(**call) for call in calls),
        questions=tuple(OpenQuestion(**question) for question in questions),
        runs=tuple(WaitedRun(**run) for run in runs),
    )
