"""Reading from Postgres: whole turns for clients, in one snapshot of the database, and blocks for tools and the call
policy."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from everturn.conversations.postgres import LOAD_CONVERSATION, read_conversation
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.paging import BadCursor
from everturn.core.threads import call_sized
from everturn.events.turn_view import TurnPage, TurnRecord
from everturn.feedback.postgres import FEEDBACK_COLUMNS, read_feedback
from everturn.postgres.pool import Connection, Database, Row
from everturn.queue.model import MAX_AHEAD, WaitingTurn, build_position
from everturn.timeline.blocks import Block, BlockType
from everturn.timeline.sources import Source
from everturn.turns.ports import BLOCK_PAGE_BYTES, PAGE_BYTES, BlockPage, ConversationStatus
from everturn.turns.postgres_rows import (
    BLOCK_BYTES,
    BLOCK_COLUMNS,
    END_SEQ,
    SIGNAL_COLUMNS,
    TURN_COLUMNS,
    read_block,
    read_blocks,
    read_cursor,
    read_signal,
    read_turn,
)
from everturn.turns.postgres_sources import load_sources

_MAX_ORDINAL_DIGITS = 9
_NO_ORDINAL = 2**31 - 1
"""Greater than that of any turn."""
# The blocks of a turn lie between its first_seq and that of the next turn that has begun. Under row level security only
# plain comparisons of `seq` can use the primary key, so COALESCE is computed first, in a part that is not merged into
# the rest. Octets are counted without reading the texts.
_COLUMNS = """
SELECT id, ordinal, first_seq, octet_length(request) AS bytes,
       COALESCE((SELECT first_seq FROM turn AS later
                  WHERE conversation_id = $1 AND ordinal > turn.ordinal AND first_seq IS NOT NULL
                  ORDER BY ordinal LIMIT 1), 9223372036854775807) AS end_seq
  FROM turn
 WHERE conversation_id = $1 AND ordinal < $2 AND (NOT $3 OR EXISTS (SELECT FROM feedback
                                           WHERE conversation_id = $1 AND turn_id = turn.id))
"""
_MEASURED = """
SELECT id, ordinal, first_seq, end_seq,
       bytes + COALESCE((SELECT sum(octet_length(body)) FROM block
                          WHERE conversation_id = $1 AND seq >= page.first_seq AND seq < page.end_seq
                            AND turn_id = page.id), 0)
             + COALESCE((SELECT sum(octet_length(payload)) FROM signal WHERE turn_id = page.id), 0)
             + COALESCE((SELECT sum(octet_length(text)) FROM feedback WHERE turn_id = page.id), 0) AS bytes,
       EXISTS (SELECT FROM signal WHERE turn_id = page.id) AS has_signals,
       EXISTS (SELECT FROM feedback WHERE turn_id = page.id) AS has_feedback
  FROM page ORDER BY ordinal DESC
"""
_PAGE = f"WITH page AS MATERIALIZED ({_COLUMNS} ORDER BY ordinal DESC LIMIT $4) {_MEASURED}"
# Without a limit, so that turns are found by their ids instead of by scanning the whole conversation.
_NAMED = f"WITH page AS MATERIALIZED ({_COLUMNS} AND id = ANY($4)) {_MEASURED}"
_TURNS = f"""
SELECT {TURN_COLUMNS}, first_seq
  FROM turn WHERE id = ANY($1) ORDER BY ordinal
"""
# Sorted for each turn, so that the planner does not join by turn_id, which reads all blocks of the conversation.
_BLOCKS = f"""
SELECT {BLOCK_COLUMNS}
  FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS part (id, first_seq, end_seq)
 CROSS JOIN LATERAL (SELECT * FROM block
                      WHERE conversation_id = $1 AND seq >= part.first_seq AND seq < part.end_seq AND turn_id = part.id
                      ORDER BY seq) AS found
 ORDER BY seq
"""
# OFFSET 0 keeps the planner from calling queue_positions for conversations that aren't queued.
_STATUS = f"""
SELECT found.*, place.turn_id AS waiting_id, place.ahead
  FROM ({LOAD_CONVERSATION}) AS found
  LEFT JOIN LATERAL (
       SELECT * FROM queue_positions(ARRAY[$4], ARRAY[$1], ARRAY[$2], ARRAY[$3], $5)
        WHERE found.state = 'queued' OFFSET 0) AS place ON place.turn_id = found.open_turn_id
"""
_ORDINAL = "SELECT ordinal FROM turn WHERE id = $1 AND conversation_id = $2"
_SOME_BLOCKS = f"""
SELECT {BLOCK_COLUMNS}
  FROM block WHERE conversation_id = $1 AND seq = ANY($2::bigint[]) ORDER BY seq
"""
_SIGNALS = f"""
SELECT {SIGNAL_COLUMNS}
  FROM signal WHERE turn_id = ANY($1) ORDER BY inbox_seq
"""
_FEEDBACK = f"""
SELECT {FEEDBACK_COLUMNS} FROM feedback WHERE turn_id = ANY($1) ORDER BY ts, id
"""
_BLOCK_PAGE = f"""
SELECT {BLOCK_COLUMNS}, total
  FROM (SELECT b.*, count(*) OVER () AS total,
               COALESCE(sum(octet_length(b.body))
                        OVER (ORDER BY b.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
          FROM block b, turn t
         WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
           AND b.seq > $3 AND b.seq >= t.first_seq
           AND b.seq < {END_SEQ}) AS page
 WHERE bytes_before < $4 ORDER BY seq
"""
_BEFORE = f"""
SELECT {BLOCK_COLUMNS}, total
  FROM (SELECT b.*, count(*) OVER () AS total,
               COALESCE(sum(octet_length(b.body))
                        OVER (ORDER BY b.seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_after
          FROM block b
         WHERE b.conversation_id = $1 AND b.seq < $2 AND b.type = ANY($3::text[])) AS page
 WHERE bytes_after < $4 ORDER BY seq
"""
_LAST = f"""
SELECT {BLOCK_COLUMNS}
  FROM block b, turn t
 WHERE t.id = $2 AND t.conversation_id = $1 AND b.conversation_id = $1 AND b.turn_id = $2
   AND b.seq >= t.first_seq
   AND b.seq < {END_SEQ}
   AND ($3::text IS NULL OR b.ref = $3) AND ($4::text IS NULL OR b.type = $4)
 ORDER BY b.seq DESC LIMIT 1
"""
_PLAN = f"""
SELECT {BLOCK_COLUMNS}
  FROM block
 WHERE conversation_id = $1 AND type = 'react.plan' AND right(ref, length($2)) = $2
 ORDER BY seq DESC LIMIT 1
"""


class PostgresTurns:
    """Reads whole turns; ids in `turn_ids` that name no turn of the conversation are ignored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_page(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        *,
        turn_ids: Sequence[TurnId] | None = None,
        cursor: str | None = None,
        limit: int = 20,
        with_feedback: bool = False,
        max_bytes: int = PAGE_BYTES,
    ) -> TurnPage:
        if turn_ids is not None and not turn_ids and cursor is None:
            # One statement reads one snapshot by itself.
            async with self._database.connection() as connection:
                return _read_page(await _load_conversation(connection, principal, conversation_id))
        before = _NO_ORDINAL if cursor is None else _read_ordinal(cursor)
        async with self._database.transaction(principal, isolation="repeatable_read", readonly=True) as transaction:
            conversation = await _load_conversation(transaction, principal, conversation_id)
            if cursor is not None and before > (conversation["newest"] or 0):
                raise BadCursor()
            if turn_ids is None:
                found = await transaction.fetch(_PAGE, conversation_id, before, with_feedback, limit + 1)
            else:
                found = await transaction.fetch(_NAMED, conversation_id, before, with_feedback, list(turn_ids))
            page = _fit(found[:limit], max_bytes)
            rows = await _load_rows(transaction, conversation_id, page)
        size = sum(row["bytes"] for row in page) + BLOCK_BYTES * sum(map(len, rows))
        records = await call_sized(size, lambda: _read_records(*rows))
        return _read_page(conversation, records, str(page[-1]["ordinal"]) if len(found) > len(page) else None)

    async def load_status(self, principal: Principal, conversation_id: ConversationId) -> ConversationStatus:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_STATUS, *principal.owner, conversation_id, MAX_AHEAD + 1)
        if row is None:
            raise NotFound(conversation_id)
        waiting = WaitingTurn(row["waiting_id"], build_position(row["ahead"])) if row["waiting_id"] else None
        return ConversationStatus(read_conversation(row), row["open_turn_id"], waiting)

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await load_sources(transaction, conversation_id)

    async def load_ordinal(self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId) -> int:
        async with self._database.transaction(principal, readonly=True) as transaction:
            ordinal = await transaction.fetchval(_ORDINAL, turn_id, conversation_id)
        if ordinal is None:
            raise NotFound(turn_id)
        return int(ordinal)

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, seqs: Sequence[int]
    ) -> tuple[Block, ...]:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_SOME_BLOCKS, conversation_id, list(seqs))
        return await read_blocks(rows)


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
        max_bytes: int = BLOCK_PAGE_BYTES,
    ) -> BlockPage:
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_BLOCK_PAGE, conversation_id, turn_id, after_seq, max_bytes)
        return BlockPage(await read_blocks(rows), more=bool(rows) and rows[0]["total"] > len(rows))

    async def load_blocks_before(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        before_seq: int,
        kinds: Collection[BlockType],
        *,
        max_bytes: int = BLOCK_PAGE_BYTES,
    ) -> BlockPage:
        wanted = sorted(kind.value for kind in kinds)
        async with self._database.transaction(principal, readonly=True) as transaction:
            rows = await transaction.fetch(_BEFORE, conversation_id, before_seq, wanted, max_bytes)
        return BlockPage(await read_blocks(rows), more=bool(rows) and rows[0]["total"] > len(rows))

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


async def _load_conversation(connection: Connection, principal: Principal, conversation_id: ConversationId) -> Row:
    row = await connection.fetchrow(LOAD_CONVERSATION, *principal.owner, conversation_id)
    if row is None:
        raise NotFound(conversation_id)
    return row


def _read_page(conversation: Row, turns: tuple[TurnRecord, ...] = (), next_cursor: str | None = None) -> TurnPage:
    return TurnPage(
        conversation=read_conversation(conversation),
        turns=turns,
        cursor=read_cursor(conversation["event_cursor"]),
        next_cursor=next_cursor,
        open_turn_id=conversation["open_turn_id"],
    )


def _read_ordinal(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_ORDINAL_DIGITS):
        raise BadCursor()
    return int(cursor)


def _fit(newest_first: Sequence[Row], max_bytes: int) -> Sequence[Row]:
    """The first row, and as many after it as fit into `max_bytes` together."""
    total = 0
    for count, row in enumerate(newest_first):
        total += row["bytes"]
        if count and total > max_bytes:
            return newest_first[:count]
    return newest_first


async def _load_rows(
    transaction: Connection, conversation_id: ConversationId, page: Sequence[Row]
) -> tuple[Sequence[Row], Sequence[Row], Sequence[Row], Sequence[Row]]:
    """The turns of the page, oldest first, and all their blocks, signals and feedback."""
    if not page:
        return (), (), (), ()
    begun = [row for row in page if row["first_seq"] is not None]
    parts = [[row[column] for row in begun] for column in ("id", "first_seq", "end_seq")]
    # Most turns have neither signals nor feedback, and each call takes as long as reading many rows.
    with_signals = [row["id"] for row in page if row["has_signals"]]
    with_feedback = [row["id"] for row in page if row["has_feedback"]]
    return (
        await transaction.fetch(_TURNS, [row["id"] for row in page]),
        await transaction.fetch(_BLOCKS, conversation_id, *parts) if begun else (),
        await transaction.fetch(_SIGNALS, with_signals) if with_signals else (),
        await transaction.fetch(_FEEDBACK, with_feedback) if with_feedback else (),
    )


def _read_records(
    turns: Sequence[Row], blocks: Sequence[Row], signals: Sequence[Row], feedback: Sequence[Row]
) -> tuple[TurnRecord, ...]:
    blocks_of, signals_of, feedback_of = map(_group, (blocks, signals, feedback))
    return tuple(
        TurnRecord(
            turn=read_turn(row),
            blocks=tuple(map(read_block, blocks_of[row["id"]])),
            signals=tuple(map(read_signal, signals_of[row["id"]])),
            feedback=tuple(map(read_feedback, feedback_of[row["id"]])),
        )
        for row in turns
    )


def _group(rows: Sequence[Row]) -> Mapping[str, Sequence[Row]]:
    """Rows by turn. Comparing every turn of a large page with every row would take seconds."""
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["turn_id"]].append(row)
    return grouped
