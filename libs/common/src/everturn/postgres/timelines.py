"""Timelines in Postgres: what a lease holder reads at the start of a turn, and its one way to write."""

from everturn.errors import NotFound, StaleFence
from everturn.model.blocks import Block
from everturn.model.commits import Commit
from everturn.model.feedback import Feedback
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.leases import EventCursor, Lease
from everturn.model.llm.sources import Source
from everturn.model.signals import Signal
from everturn.model.turns import Turn, TurnUsage
from everturn.ports.timelines import OutOfOrder
from everturn.postgres.commits import append_blocks, append_commit, holds_blocks_only
from everturn.postgres.database import Database
from everturn.postgres.rows import (
    read_block,
    read_feedback,
    read_signal,
    read_turn,
    storable,
)
from everturn.postgres.sources import load_source_text, load_sources

_BLOCKS = """
SELECT seq, turn_id, round, type, ref, call_id, body, ts, ts_first, hash
  FROM block WHERE conversation_id = $1 AND seq > $2 ORDER BY seq
"""
# The body is canonical JSON: inside a text every quote is escaped, so that only the body's own fields match. It is not
# cast to json, because the text of a summary may hold U+0000, which Postgres refuses to unescape.
_COVERED = """
SELECT substring(body FROM '"last_seq":([0-9]+)')::bigint
  FROM block
 WHERE conversation_id = $1 AND type = 'conv.range.summary' AND position('"scope":"history"' IN body) > 0
 ORDER BY seq DESC LIMIT 1
"""
_TURN = """
SELECT id, conversation_id, ordinal, status, attempt, request, created_at, started_at, ended_at, outcome, usage, error,
       leased_s, clock_timestamp() AS read_at
  FROM turn WHERE id = $1
"""
_SIGNALS = """
SELECT id, turn_id, kind, payload, state, round, promoted_to, created_at
  FROM signal WHERE turn_id = $1 ORDER BY inbox_seq
"""
_FEEDBACK = """
SELECT turn_id, origin, reaction, text, confidence, ts
  FROM feedback WHERE conversation_id = $1 AND NOT told ORDER BY ts, id
"""
_USAGE = """
SELECT COALESCE(sum(input_tokens), 0)::bigint AS input_tokens, COALESCE(sum(output_tokens), 0)::bigint AS output_tokens,
       COALESCE(sum(cache_read_tokens), 0)::bigint AS cache_read_tokens, COALESCE(sum(cost_usd), 0) AS cost_usd,
       COALESCE(bool_and(cost_known), true) AS cost_known
  FROM usage_event WHERE turn_id = $1
"""
_SAVE_TITLE = """
UPDATE conversation SET title = COALESCE(NULLIF(title, ''), $3) WHERE id = $1 AND fence = $2 RETURNING title
"""
_ANNOUNCE = """
WITH held AS (UPDATE conversation SET event_cursor = $4 WHERE id = $2 AND fence = $3 RETURNING id)
UPDATE turn SET announced_at = clock_timestamp() FROM held WHERE turn.id = $1 AND turn.conversation_id = held.id
"""
# Of a turn that has ended `attempt` is free: its last commit has set it to 0.
_ANNOUNCING = """
SELECT t.attempt FROM turn t JOIN conversation c ON c.id = t.conversation_id
 WHERE t.id = $1 AND c.id = $2 AND c.fence = $3 AND t.status IN ('completed', 'failed', 'cancelled')
"""
_SAVE_ANNOUNCING = """
UPDATE turn SET attempt = $4
  FROM conversation c
 WHERE turn.id = $1 AND c.id = turn.conversation_id AND c.id = $2 AND c.fence = $3
   AND turn.status IN ('completed', 'failed', 'cancelled')
"""


class PostgresTimelines:
    """Reads under the principal's policy, writes under the lease's fence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, *, after_seq: int = 0
    ) -> tuple[Block, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(read_block(row) for row in await transaction.fetch(_BLOCKS, conversation_id, after_seq))

    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            # Two statements: under row level security a subquery would not be used to search the index.
            covered = await transaction.fetchval(_COVERED, conversation_id)
            return tuple(read_block(row) for row in await transaction.fetch(_BLOCKS, conversation_id, covered or 0))

    async def load_turn(self, principal: Principal, turn_id: TurnId) -> Turn:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_TURN, turn_id)
        if row is None:
            raise NotFound(turn_id)
        return read_turn(row)

    async def load_signals(self, principal: Principal, turn_id: TurnId) -> tuple[Signal, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(read_signal(row) for row in await transaction.fetch(_SIGNALS, turn_id))

    async def load_title(self, principal: Principal, conversation_id: ConversationId) -> str:
        async with self._database.transaction(principal, readonly=True) as transaction:
            title = await transaction.fetchval("SELECT title FROM conversation WHERE id = $1", conversation_id)
        if title is None:
            raise NotFound
        return str(title)

    async def save_title(self, lease: Lease, title: str) -> bool:
        wanted = storable(title)
        async with self._database.transaction(lease.principal) as transaction:
            saved = await transaction.fetchval(_SAVE_TITLE, lease.conversation_id, lease.fence, wanted)
        if saved is None:
            raise StaleFence(lease.conversation_id)
        return bool(saved == wanted)

    async def load_usage(self, principal: Principal, turn_id: TurnId) -> TurnUsage:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return TurnUsage.model_validate(dict(await transaction.fetchrow(_USAGE, turn_id) or {}))

    async def load_fresh_feedback(self, principal: Principal, conversation_id: ConversationId) -> tuple[Feedback, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return tuple(read_feedback(row) for row in await transaction.fetch(_FEEDBACK, conversation_id))

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await load_sources(transaction, conversation_id)

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await load_source_text(transaction, conversation_id, sid)

    async def commit(self, lease: Lease, commit: Commit) -> int:
        try:
            async with self._database.connection() as connection:
                if holds_blocks_only(commit):
                    return await append_blocks(connection, lease, commit)
                async with connection.transaction():
                    return await append_commit(connection, lease, commit)
        except OutOfOrder:
            return await self._check_written(lease, commit)

    async def load_announcing(self, lease: Lease, turn_id: TurnId) -> int:
        async with self._database.transaction(lease.principal, readonly=True) as transaction:
            tries = await transaction.fetchval(_ANNOUNCING, turn_id, lease.conversation_id, lease.fence)
        if tries is None:
            raise StaleFence(lease.conversation_id)
        return int(tries)

    async def save_announcing(self, lease: Lease, turn_id: TurnId, tries: int) -> None:
        async with self._database.transaction(lease.principal) as transaction:
            done = await transaction.execute(_SAVE_ANNOUNCING, turn_id, lease.conversation_id, lease.fence, tries)
        if done != "UPDATE 1":
            raise StaleFence(lease.conversation_id)

    async def save_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        async with self._database.transaction(lease.principal) as transaction:
            done = await transaction.execute(_ANNOUNCE, turn_id, lease.conversation_id, lease.fence, str(cursor))
        if done != "UPDATE 1":
            raise StaleFence(lease.conversation_id)

    async def _check_written(self, lease: Lease, commit: Commit) -> int:
        """A commit whose answer was lost comes again: the last hash tells that exactly its blocks stand already."""
        async with self._database.transaction(lease.principal, readonly=True) as transaction:
            inbox_seq = await transaction.fetchval(
                "SELECT inbox_seq FROM conversation WHERE id = $1 AND fence = $2 AND last_hash = $3",
                lease.conversation_id,
                lease.fence,
                commit.blocks[-1].hash,
            )
        if inbox_seq is None:
            raise OutOfOrder(f"{commit.blocks[0].seq} of {lease.conversation_id}")
        return int(inbox_seq)
