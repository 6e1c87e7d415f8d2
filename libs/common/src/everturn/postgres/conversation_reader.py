"""Blocks read back from Postgres: by turn, by ref within a turn, and the newest snapshot of a plan."""

from collections.abc import Collection

from everturn.model.blocks import Block, BlockType
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.ports.recall.conversation_reader import PAGE_BYTES, BlockPage
from everturn.postgres.database import Database
from everturn.postgres.rows import read_block

# A turn's blocks lie between its first_seq and that of the next turn that has begun, which the primary key finds.
_PAGE = """
SELECT seq, turn_id, round, type, ref, call_id, body, ts, ts_first, hash, total
  FROM (SELECT b.*, count(*) OVER () AS total,
               COALESCE(sum(octet_length(b.body))
                        OVER (ORDER BY b.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
          FROM block b, turn t
         WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
           AND b.seq > $3 AND b.seq >= t.first_seq
           AND b.seq < COALESCE((SELECT n.first_seq FROM turn n
                                  WHERE n.conversation_id = $1 AND n.ordinal > t.ordinal AND n.first_seq IS NOT NULL
                                  ORDER BY n.ordinal LIMIT 1), 9223372036854775807)) AS page
 WHERE bytes_before < $4 ORDER BY seq
"""
_BEFORE = """
SELECT seq, turn_id, round, type, ref, call_id, body, ts, ts_first, hash, total
  FROM (SELECT b.*, count(*) OVER () AS total,
               COALESCE(sum(octet_length(b.body))
                        OVER (ORDER BY b.seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_after
          FROM block b
         WHERE b.conversation_id = $1 AND b.seq < $2 AND b.type = ANY($3::text[])) AS page
 WHERE bytes_after < $4 ORDER BY seq
"""
_LAST = """
SELECT b.seq, b.turn_id, b.round, b.type, b.ref, b.call_id, b.body, b.ts, b.ts_first, b.hash
  FROM block b, turn t
 WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
   AND b.seq >= t.first_seq
   AND b.seq < COALESCE((SELECT n.first_seq FROM turn n
                          WHERE n.conversation_id = $1 AND n.ordinal > t.ordinal AND n.first_seq IS NOT NULL
                          ORDER BY n.ordinal LIMIT 1), 9223372036854775807)
   AND ($3::text IS NULL OR b.ref = $3) AND ($4::text IS NULL OR b.type = $4)
 ORDER BY b.seq DESC LIMIT 1
"""
_PLAN = """
SELECT seq, turn_id, round, type, ref, call_id, body, ts, ts_first, hash
  FROM block
 WHERE conversation_id = $1 AND type = 'react.plan' AND right(ref, length($2)) = $2
 ORDER BY seq DESC LIMIT 1
"""


class PostgresConversationReader:
    """Reads under the principal's policy."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_turn_blocks(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        after_seq: int = 0,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_PAGE, conversation_id, turn_id, after_seq, max_bytes)
        return BlockPage(tuple(map(read_block, rows)), more=bool(rows) and rows[0]["total"] > len(rows))

    async def load_blocks_before(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        before_seq: int,
        kinds: Collection[BlockType],
        *,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        wanted = sorted(kind.value for kind in kinds)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_BEFORE, conversation_id, before_seq, wanted, max_bytes)
        return BlockPage(tuple(map(read_block, rows)), more=bool(rows) and rows[0]["total"] > len(rows))

    async def try_load_last_block(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        ref: str | None = None,
        kind: BlockType | None = None,
    ) -> Block | None:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_LAST, conversation_id, turn_id, ref, kind and kind.value)
        return read_block(row) if row else None

    async def try_load_plan(self, principal: Principal, conversation_id: ConversationId, plan_id: str) -> Block | None:
        async with self._database.transaction(principal, readonly=True) as transaction:
            row = await transaction.fetchrow(_PLAN, conversation_id, f".react.plan.{plan_id}")
        return read_block(row) if row else None
