"""P6: what the append of one turn's blocks costs against one tiny commit, and whether it grows with the timeline.

Needs nothing running: it starts its own Postgres, which keeps its data safe (fsync on), in a folder that it removes.
"""

import asyncio
import sys
from dataclasses import replace

import asyncpg
from helpers.databases import run_throwaway_database
from helpers.goals import Goal, build_goal, measure_medians, measure_ms, run_goals

from everturn.core.identity import Principal
from everturn.events.cursor import EventCursor
from everturn.postgres.pool import open_database
from everturn.timeline.blocks import (
    Block,
    BlockDraft,
    BlockType,
    CompletionBody,
    RoundStartBody,
    ThinkingBody,
    ToolCallBody,
    ToolResultBody,
    chain_blocks,
)
from everturn.turns.inbox import IncomingMessage
from everturn.turns.model import Claim, Commit
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_leases import PostgresLeases
from everturn.turns.postgres_timelines import PostgresTimelines
from everturn_local.servers.databases import DatabaseUrls
from everturn_testing.core import SequentialIds

TS = "2026-03-01T12:00:00.000Z"
SMALL, LARGE = 10, 10_000
TURN_BLOCKS = 20
SAMPLES = 200
PARAGRAPH = "The totals by region differ less than expected; north leads, south follows. " * 8


def measure() -> list[Goal]:
    with run_throwaway_database() as urls:
        return asyncio.run(measure_on(urls))


async def measure_on(urls: DatabaseUrls) -> list[Goal]:
    superuser = await asyncpg.connect(urls.superuser)
    await superuser.execute("CREATE TABLE tiny (n integer)")
    async with (
        open_database(urls.ingress, pool_size=1, application_name="bench") as ingress,
        open_database(urls.worker, pool_size=1, application_name="bench") as worker,
    ):
        ids, timelines = SequentialIds(), PostgresTimelines(worker)
        inbox, leases = PostgresInbox(ingress, share=1_000_000), PostgresLeases(worker, owner="bench")
        long = Appender(timelines, await open_conversation(ids, inbox, leases))
        for _ in range(LARGE // 1_000):
            await long.append(1_000)
        await superuser.execute("VACUUM ANALYZE")

        async def tiny_ms() -> float:
            return await measure_ms(lambda: superuser.execute("INSERT INTO tiny VALUES (1)"))

        async def short_ms() -> float:
            """A new conversation for each sample: one that grew while it was measured would not stay short."""
            short = Appender(timelines, await open_conversation(ids, inbox, leases))
            await short.append(SMALL)
            return await measure_ms(lambda: short.append(TURN_BLOCKS))

        async def long_ms() -> float:
            return await measure_ms(lambda: long.append(TURN_BLOCKS))

        tiny, at_small, at_large = await measure_medians([tiny_ms, short_ms, long_ms], SAMPLES)
        wal, payload = await measure_wal(superuser, long)
    await superuser.close()
    return [
        build_goal(f"P6 append of {TURN_BLOCKS} blocks to {SMALL} vs one tiny commit, ms", at_small, tiny, 2.0),
        build_goal(f"P6 append of {TURN_BLOCKS} blocks to {LARGE} vs one tiny commit, ms", at_large, tiny, 2.0),
        build_goal(f"P6 append to {LARGE} blocks vs to {SMALL}, ms", at_large, at_small, 1.2),
        build_goal("P6 WAL of the append vs its payload, bytes", wal, payload, 3.0),
    ]


async def measure_wal(superuser: asyncpg.Connection, appender: "Appender") -> tuple[float, float]:
    """Bytes of WAL and of payload of 20 appends after a checkpoint's full pages have been written."""
    await appender.append(TURN_BLOCKS)
    before = await superuser.fetchval("SELECT pg_current_wal_insert_lsn()")
    payload = 0
    for _ in range(20):
        payload += sum(len(block.body_json.encode()) for block in await appender.append(TURN_BLOCKS))
    wal = await superuser.fetchval("SELECT pg_current_wal_insert_lsn() - $1::pg_lsn", before)
    return float(wal), float(payload)


async def open_conversation(ids: SequentialIds, inbox: PostgresInbox, leases: PostgresLeases) -> Claim:
    message = IncomingMessage(ids.conversation(), True, "Hello.", (), ids.turn(), ids.signal())
    await inbox.accept_message(Principal("bench", "bench", "bench"), message, None)
    claim = await leases.try_claim(message.conversation_id)
    assert claim is not None
    return claim


class Appender:
    """Appends to one conversation, as its lease holder does: it keeps seq and hash in memory."""

    def __init__(self, timelines: PostgresTimelines, claim: Claim) -> None:
        self._timelines = timelines
        self._claim = claim

    async def append(self, count: int) -> tuple[Block, ...]:
        assert self._claim.turn_id is not None
        drafts = [
            BlockDraft(self._claim.turn_id, 1, *BODIES[n % len(BODIES)], TS)  # type: ignore[arg-type] pairs and a text
            for n in range(count)
        ]
        blocks = chain_blocks(drafts, next_seq=self._claim.next_seq, last_hash=self._claim.last_hash)
        cursor = EventCursor(self._claim.lease.fence, blocks[-1].seq)
        await self._timelines.commit(self._claim.lease, Commit(self._claim.turn_id, blocks, cursor))
        self._claim = replace(self._claim, next_seq=blocks[-1].seq + 1, last_hash=blocks[-1].hash)
        return blocks


BODIES = (
    (BlockType.ROUND_START, "ar:round.start", RoundStartBody(limit=15)),
    (BlockType.THINKING, "ar:thinking.0", ThinkingBody(text=PARAGRAPH)),
    (BlockType.TOOL_CALL, "tc:call", ToolCallBody(tool_id="io.read", params={"paths": ["files/sales.csv"]})),
    (BlockType.TOOL_RESULT, "tc:result", ToolResultBody(tool_id="io.read", status="ok", text=PARAGRAPH * 2)),
    (BlockType.COMPLETION, "ar:completion", CompletionBody(text=PARAGRAPH)),
)

if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure))
