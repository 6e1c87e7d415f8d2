"""Every reader of blocks parses many of them beside the event loop, after its connection went back to the pool."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from everturn.core.ids import ConversationId, TurnId
from everturn.core.threads import ON_LOOP_SIZE
from everturn.postgres.pool import Database, Row, open_database
from everturn.timeline.blocks import Block, BlockType
from everturn.turns import postgres_rows
from everturn.turns.postgres_reading import PostgresConversationReader, PostgresTurns
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.turns.harness import ANN, Harness, commit, think

Read = Callable[[Database, ConversationId, TurnId], Awaitable[Sequence[Block]]]


async def read_recent(database: Database, conversation_id: ConversationId, turn_id: TurnId) -> Sequence[Block]:
    return await PostgresTimelines(database).load_recent_blocks(ANN, conversation_id)


async def read_some(database: Database, conversation_id: ConversationId, turn_id: TurnId) -> Sequence[Block]:
    return await PostgresTurns(database).load_blocks(ANN, conversation_id, [1, 2])


async def read_turn(database: Database, conversation_id: ConversationId, turn_id: TurnId) -> Sequence[Block]:
    return (await PostgresConversationReader(database).load_turn_blocks(ANN, conversation_id, turn_id)).blocks


async def read_earlier(database: Database, conversation_id: ConversationId, turn_id: TurnId) -> Sequence[Block]:
    reader = PostgresConversationReader(database)
    return (await reader.load_blocks_before(ANN, conversation_id, 3, [BlockType.THINKING])).blocks


@pytest.mark.parametrize("read", [read_recent, read_some, read_turn, read_earlier])
@pytest.mark.parametrize("chars", [10, ON_LOOP_SIZE])
async def test_only_large_blocks_are_parsed_in_a_thread(
    postgres_harness: Harness, database: DatabaseUrls, monkeypatch: pytest.MonkeyPatch, read: Read, chars: int
) -> None:
    claim = await postgres_harness.start_turn()
    assert claim.turn_id is not None
    blocks = think(claim, "x" * chars, "y")
    await postgres_harness.timelines.commit(claim.lease, commit(claim, blocks))
    loop, read_block = asyncio.get_running_loop(), postgres_rows.read_block
    on_loop: list[bool] = []

    async with open_database(database.worker, pool_size=1, application_name="test") as opened:

        async def use_connection() -> None:
            async with opened.connection() as connection:
                await connection.fetchval("SELECT 1")

        def read_and_note(row: Row) -> Block:
            on_loop.append(threading.current_thread() is threading.main_thread())
            if not on_loop[-1]:
                # The pool has one connection, so this ends only if the reader has released it.
                asyncio.run_coroutine_threadsafe(use_connection(), loop).result(timeout=10)
            return read_block(row)

        monkeypatch.setattr(postgres_rows, "read_block", read_and_note)
        found = await read(opened, claim.lease.conversation_id, claim.turn_id)

    assert tuple(found) == blocks
    assert on_loop == [chars < ON_LOOP_SIZE] * 2
