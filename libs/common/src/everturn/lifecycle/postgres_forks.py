"""Forking in Postgres: one transaction that copies the rows of a conversation under new ids.

The source's row is locked against erasure, but not against a turn that is running in it: the copied turns have ended,
and blocks never change.

The database copies the rows; only values that contain ids pass through this process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from pydantic import TypeAdapter

from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.lifecycle.forks import Fork, ForkRequest, Renaming, find_ids
from everturn.postgres.pool import Connection, Database, Row
from everturn.timeline.blocks import GENESIS_HASH, link_hash
from everturn.timeline.turns import TurnStatus
from everturn.turns.inbox import IdempotencyKey
from everturn.turns.postgres_inbox import claim_key, save_response

# Blocks erasure but not appends, which change no key.
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
# The events of an ended turn were published in the source, and its model calls are in the ledger there. Its texts are
# indexed again for the fork.
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

PAGE_ROWS = 200
PAGE_BYTES = 1_000_000
_FORK = TypeAdapter(Fork)


@dataclass(frozen=True, slots=True)
class _Copy:
    """The source, the fork, and what is copied. `last_seq` is the last block of the last turn."""

    principal: Principal
    source_id: ConversationId
    fork_id: ConversationId
    turns: tuple[TurnId, ...]
    last_seq: int
    renaming: Renaming


class PostgresForks:
    """Implements Forks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fork(
        self, principal: Principal, source_id: ConversationId, wish: ForkRequest, key: IdempotencyKey | None
    ) -> Fork:
        async with self._database.transaction(principal) as transaction:
            replayed = await claim_key(transaction, principal, source_id, key)
            if replayed is not None:
                return _FORK.validate_json(replayed)
            if await transaction.fetchval(LOCK, source_id) is None:
                raise NotFound(source_id)
            turn = await _find_turn(transaction, source_id, wish.turn_id)
            copy = await _plan(transaction, principal, source_id, wish, turn)
            await transaction.execute(CREATE, source_id, wish.fork_id, wish.title)
            await _copy_blocks(transaction, copy)
            await _copy_turns(transaction, copy)
            await _copy_artifacts(transaction, copy)
            await _copy_signals(transaction, copy)
            await _copy_sources(transaction, copy)
            fork = Fork(wish.fork_id, source_id, turn["id"], len(copy.turns), copy.last_seq)
            await save_response(transaction, key, _FORK.dump_json(fork).decode(), source_id)
        return fork


async def _find_turn(transaction: Connection, source_id: ConversationId, wanted: TurnId | None) -> Row:
    """The last turn to copy. Raises NotFound, or Conflict when it has not ended."""
    if wanted is None:
        row = await transaction.fetchrow(LAST_ENDED, source_id)
        if row is None:
            raise Conflict("No turn of this conversation has ended yet.")
        return row
    row = await transaction.fetchrow(NAMED_TURN, source_id, wanted)
    if row is None:
        raise NotFound(wanted)
    if TurnStatus(row["status"]).is_open:
        raise Conflict(f"{wanted} has not ended yet.")
    return row


async def _plan(
    transaction: Connection, principal: Principal, source_id: ConversationId, wish: ForkRequest, last: Row
) -> _Copy:
    rows = await transaction.fetch(TURNS, source_id, last["ordinal"])
    turns: list[TurnId] = [row["id"] for row in rows]
    last_seq = await transaction.fetchval(LAST_SEQ, source_id, last["ordinal"])
    # Files of an event that waited for a turn name a turn that was never opened: only the request names them.
    named: set[str] = set()
    for turn_id in turns:
        named |= find_ids(await transaction.fetchval(REQUEST, turn_id))
    artifacts = await transaction.fetch(ARTIFACT_IDS, source_id, turns, sorted(named))
    signals = await transaction.fetch(SIGNAL_IDS, source_id, turns)
    ids = [*turns, *(row["id"] for row in artifacts), *(row["id"] for row in signals)]
    renaming = Renaming(source_id, wish.fork_id, ids)
    return _Copy(principal, source_id, wish.fork_id, tuple(turns), last_seq, renaming)


async def _copy_blocks(transaction: Connection, copy: _Copy) -> None:
    """The hash chain is recomputed, because the ids in the blocks are new."""
    seq, last_hash = 0, GENESIS_HASH
    while seq < copy.last_seq:
        page = await transaction.fetch(BLOCKS, copy.source_id, seq, copy.last_seq, PAGE_ROWS, PAGE_BYTES)
        blocks = [_rename_block(row, copy.renaming) for row in page]
        hashes: list[str] = []
        for number, block in enumerate(blocks, start=seq + 1):
            last_hash = link_hash(last_hash, seq=number, **block)
            hashes.append(last_hash)
        columns = [[block[name] for block in blocks] for name in BLOCK_COLUMNS]
        kept = [[row[name] for row in page] for name in ("author", "ts_first")]
        await transaction.execute(APPEND, copy.fork_id, seq + 1, *columns, *kept, hashes)
        seq += len(page)


def _rename_block(row: Row, renaming: Renaming) -> dict[str, Any]:
    """The fields that the hash covers."""
    renamed = {name: renaming.rename(row[name]) for name in ("turn_id", "ref", "body")}
    return renamed | {name: row[name] for name in ("round", "type", "call_id", "ts")}


async def _copy_turns(transaction: Connection, copy: _Copy) -> None:
    for turn_id in copy.turns:
        request = copy.renaming.rename(await transaction.fetchval(REQUEST, turn_id))
        await transaction.execute(COPY_TURN, turn_id, copy.renaming[turn_id], copy.fork_id, request)


async def _copy_artifacts(transaction: Connection, copy: _Copy) -> None:
    """Their object keys don't change: the objects are shared until the last row that names them is erased."""
    ids = await _sorted_ids(transaction, copy, ARTIFACTS_OF_SOURCE)
    for start in range(0, len(ids), PAGE_ROWS):
        rows = await transaction.fetch(ARTIFACTS, ids[start : start + PAGE_ROWS])
        names = ("turn_id", "ref", "rn", "path")
        renamed = [[copy.renaming.rename(row[name]) for row in rows] for name in names]
        old = [row["id"] for row in rows]
        await transaction.execute(COPY_ARTIFACTS, copy.fork_id, old, [copy.renaming[id] for id in old], *renamed)


async def _copy_signals(transaction: Connection, copy: _Copy) -> None:
    for signal_id in await _sorted_ids(transaction, copy, SIGNALS_OF_SOURCE):
        row = await transaction.fetchrow(SIGNAL, signal_id)
        if row is not None:
            turns = [copy.renaming.get(row[name]) for name in ("turn_id", "promoted_to")]
            payload = copy.renaming.rename(row["payload"])
            await transaction.execute(COPY_SIGNAL, signal_id, copy.renaming[signal_id], copy.fork_id, *turns, payload)


async def _copy_sources(transaction: Connection, copy: _Copy) -> None:
    rows = await transaction.fetch(SOURCES, copy.source_id)
    keys, urls = ([copy.renaming.rename(row[name]) for row in rows] for name in ("key", "url"))
    await transaction.execute(COPY_SOURCES, copy.source_id, copy.fork_id, [row["sid"] for row in rows], keys, urls)


async def _sorted_ids(transaction: Connection, copy: _Copy, query: LiteralString) -> Sequence[str]:
    """The ids of the source's rows in a table that are copied."""
    ids = [row["id"] for row in await transaction.fetch(query, copy.source_id)]
    return [id for id in ids if copy.renaming.get(id) is not None]
