"""Forking in Postgres: one transaction that writes the rows of a conversation once more, under new ids.

The source's row is locked against erasure, but not against the turn that may be running in it: what is copied has
ended, and blocks never change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from everturn.errors import Conflict, NotFound
from everturn.model.blocks import GENESIS_HASH, link_hash
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.life.forks import Fork, Renaming, find_ids
from everturn.model.turns import TurnStatus
from everturn.ports.inbox import IdempotencyKey
from everturn.ports.life.forks import ForkWish
from everturn.postgres.accepting.kept_answers import save_response, take_key
from everturn.postgres.database import Connection, Database, Row
from everturn.postgres.life import fork_statements as sql

PAGE_ROWS = 200
PAGE_BYTES = 1_000_000
_FORK = TypeAdapter(Fork)


@dataclass(frozen=True, slots=True)
class _Copy:
    """What is copied where. `last_seq` is the last block of the last turn."""

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
        self, principal: Principal, source_id: ConversationId, wish: ForkWish, key: IdempotencyKey | None
    ) -> Fork:
        async with self._database.transaction(principal) as transaction:
            replayed = await take_key(transaction, principal, source_id, key)
            if replayed is not None:
                return _FORK.validate_json(replayed)
            if await transaction.fetchval(sql.LOCK, source_id) is None:
                raise NotFound(source_id)
            turn = await _find_turn(transaction, source_id, wish.turn_id)
            copy = await _plan(transaction, principal, source_id, wish, turn)
            await transaction.execute(sql.CREATE, source_id, wish.fork_id, wish.title)
            await _copy_blocks(transaction, copy)
            await _copy_turns(transaction, copy)
            await _copy_artifacts(transaction, copy)
            await _copy_signals(transaction, copy)
            await _copy_sources(transaction, copy)
            fork = Fork(wish.fork_id, source_id, turn["id"], len(copy.turns), copy.last_seq)
            await save_response(transaction, key, _FORK.dump_json(fork).decode(), source_id)
        return fork


async def _find_turn(transaction: Connection, source_id: ConversationId, wanted: TurnId | None) -> Row:
    """The last turn to be copied. Raises NotFound, or Conflict when it has not ended."""
    if wanted is None:
        row = await transaction.fetchrow(sql.LAST_ENDED, source_id)
        if row is None:
            raise Conflict("No turn of this conversation has ended yet.")
        return row
    row = await transaction.fetchrow(sql.NAMED_TURN, source_id, wanted)
    if row is None:
        raise NotFound(wanted)
    if TurnStatus(row["status"]).is_open:
        raise Conflict(f"{wanted} has not ended yet.")
    return row


async def _plan(
    transaction: Connection, principal: Principal, source_id: ConversationId, wish: ForkWish, last: Row
) -> _Copy:
    rows = await transaction.fetch(sql.TURNS, source_id, last["ordinal"])
    turns: list[TurnId] = [row["id"] for row in rows]
    last_seq = await transaction.fetchval(sql.LAST_SEQ, source_id, last["ordinal"])
    # Files of an event that waited for a turn name a turn that was never opened: only the request tells of them.
    named: set[str] = set()
    for turn_id in turns:
        named |= find_ids(await transaction.fetchval(sql.REQUEST, turn_id))
    artifacts = await transaction.fetch(sql.ARTIFACT_IDS, source_id, turns, sorted(named))
    signals = await transaction.fetch(sql.SIGNAL_IDS, source_id, turns)
    ids = [*turns, *(row["id"] for row in artifacts), *(row["id"] for row in signals)]
    renaming = Renaming(source_id, wish.fork_id, ids)
    return _Copy(principal, source_id, wish.fork_id, tuple(turns), last_seq, renaming)


async def _copy_blocks(transaction: Connection, copy: _Copy) -> None:
    """The chain is computed anew, because the ids in the blocks are new."""
    seq, last_hash = 0, GENESIS_HASH
    while seq < copy.last_seq:
        page = await transaction.fetch(sql.BLOCKS, copy.source_id, seq, copy.last_seq, PAGE_ROWS, PAGE_BYTES)
        blocks = [_rename_block(row, copy.renaming) for row in page]
        hashes: list[str] = []
        for number, block in enumerate(blocks, start=seq + 1):
            last_hash = link_hash(last_hash, seq=number, **block)
            hashes.append(last_hash)
        columns = [[block[name] for block in blocks] for name in sql.BLOCK_COLUMNS]
        kept = [[row[name] for row in page] for name in ("author", "ts_first")]
        await transaction.execute(sql.APPEND, copy.fork_id, seq + 1, *columns, *kept, hashes)
        seq += len(page)


def _rename_block(row: Row, renaming: Renaming) -> dict[str, Any]:
    """The fields that the hash is over."""
    renamed = {name: renaming.rename(row[name]) for name in ("turn_id", "ref", "body")}
    return renamed | {name: row[name] for name in ("round", "type", "call_id", "ts")}


async def _copy_turns(transaction: Connection, copy: _Copy) -> None:
    for turn_id in copy.turns:
        request = copy.renaming.rename(await transaction.fetchval(sql.REQUEST, turn_id))
        await transaction.execute(sql.COPY_TURN, turn_id, copy.renaming[turn_id], copy.fork_id, request)


async def _copy_artifacts(transaction: Connection, copy: _Copy) -> None:
    """Their object keys stay: the bytes are the source's, until the last row that names them is erased."""
    ids = await _sorted_ids(transaction, copy, sql.ARTIFACTS_OF_SOURCE)
    for start in range(0, len(ids), PAGE_ROWS):
        rows = await transaction.fetch(sql.ARTIFACTS, ids[start : start + PAGE_ROWS])
        names = ("turn_id", "ref", "rn", "path")
        renamed = [[copy.renaming.rename(row[name]) for row in rows] for name in names]
        old = [row["id"] for row in rows]
        await transaction.execute(sql.COPY_ARTIFACTS, copy.fork_id, old, [copy.renaming[id] for id in old], *renamed)


async def _copy_signals(transaction: Connection, copy: _Copy) -> None:
    for signal_id in await _sorted_ids(transaction, copy, sql.SIGNALS_OF_SOURCE):
        row = await transaction.fetchrow(sql.SIGNAL, signal_id)
        if row is not None:
            turns = [copy.renaming.get(row[name]) for name in ("turn_id", "promoted_to")]
            payload = copy.renaming.rename(row["payload"])
            await transaction.execute(
                sql.COPY_SIGNAL, signal_id, copy.renaming[signal_id], copy.fork_id, *turns, payload
            )


async def _copy_sources(transaction: Connection, copy: _Copy) -> None:
    rows = await transaction.fetch(sql.SOURCES, copy.source_id)
    keys, urls = ([copy.renaming.rename(row[name]) for row in rows] for name in ("key", "url"))
    await transaction.execute(sql.COPY_SOURCES, copy.source_id, copy.fork_id, [row["sid"] for row in rows], keys, urls)


async def _sorted_ids(transaction: Connection, copy: _Copy, query: str) -> Sequence[str]:
    """The ids of a table's rows of the source that are copied."""
    ids = [row["id"] for row in await transaction.fetch(query, copy.source_id)]
    return [id for id in ids if copy.renaming.get(id) is not None]
