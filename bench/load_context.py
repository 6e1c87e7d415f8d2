"""P7: what loading the context at a turn's start costs, and whether it grows with the conversation.

A summary covers all but the last turns. Needs nothing running: it starts its own Postgres in a folder that it removes.
"""

import asyncio
import sys

import asyncpg
from helpers.databases import run_throwaway_database
from helpers.goals import Goal, Sample, build_goal, measure_medians, measure_ms, run_goals

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.refs import named_artifact_ref, range_summary_ref
from everturn.events.cursor import EventCursor
from everturn.postgres.pool import open_database
from everturn.timeline.blocks import (
    GENESIS_HASH,
    BlockDraft,
    BlockType,
    Body,
    RangeSummaryBody,
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
WHO = Principal("bench", "bench", "bench")
SMALL, LARGE = 1_000, 10_000
RECENT = 120
"""Blocks behind the range of the last summary: some turns of ordinary size."""
SUMMARIES_EVERY = 200
SAMPLES = 200
TEXT = "The totals by region differ less than expected; north leads, south follows. " * 12


def measure() -> list[Goal]:
    with run_throwaway_database() as urls:
        return asyncio.run(measure_on(urls))


async def measure_on(urls: DatabaseUrls) -> list[Goal]:
    superuser = await asyncpg.connect(urls.superuser)
    async with (
        open_database(urls.ingress, pool_size=1, application_name="bench") as ingress,
        open_database(urls.worker, pool_size=1, application_name="bench") as worker,
    ):
        ids, timelines = SequentialIds(), PostgresTimelines(worker)
        inbox, leases = PostgresInbox(ingress, share=1_000_000), PostgresLeases(worker, owner="bench")
        few, many = [await write(size, ids, inbox, leases, timelines) for size in (SMALL, LARGE)]
        await superuser.execute("VACUUM ANALYZE")
        at_few, at_many = await measure_medians([load(timelines, few), load(timelines, many)], SAMPLES)
    await superuser.close()
    goal = f"P7 context of {LARGE} blocks vs of {SMALL}, ms"
    return [build_goal(goal, at_many, at_few, 1.3)]


async def write(
    size: int, ids: SequentialIds, inbox: PostgresInbox, leases: PostgresLeases, timelines: PostgresTimelines
) -> ConversationId:
    """A conversation of `size` blocks, summarized now and then, the last time RECENT blocks before its end."""
    message = IncomingMessage(ids.conversation(), True, "Hello.", (), ids.turn(), ids.signal())
    await inbox.accept_message(WHO, message, None)
    claim = await leases.try_claim(message.conversation_id)
    assert claim is not None
    drafts = [draft(claim, seq, size) for seq in range(1, size + 1)]
    blocks = chain_blocks(drafts, next_seq=1, last_hash=GENESIS_HASH)
    assert claim.turn_id is not None
    for at in range(0, size, 1_000):
        cursor = EventCursor(claim.lease.fence, at + 1)
        await timelines.commit(claim.lease, Commit(claim.turn_id, blocks[at : at + 1_000], cursor))
    return message.conversation_id


def draft(claim: Claim, seq: int, size: int) -> BlockDraft:
    assert claim.turn_id is not None
    kind, ref = BlockType.TOOL_RESULT, named_artifact_ref(claim.turn_id, f"n{seq}")
    body: Body = ToolResultBody(tool_id="io.read", status="ok", text=TEXT)
    if seq % SUMMARIES_EVERY == 0 or seq == size - 1:
        kind, ref = BlockType.RANGE_SUMMARY, range_summary_ref(claim.turn_id)
        covered = size - RECENT if seq == size - 1 else max(1, seq - RECENT)
        body = RangeSummaryBody(
            scope="history",
            first_seq=1,
            last_seq=covered,
            turn_ids=(),
            text=TEXT * 10,
            before_tokens=70_000,
            after_tokens=40_000,
            by="rules",
        )
    return BlockDraft(claim.turn_id, 1, kind, ref, body, TS)


def load(timelines: PostgresTimelines, conversation_id: ConversationId) -> Sample:
    """Milliseconds of one load."""

    async def load_once() -> None:
        assert len(await timelines.load_recent_blocks(WHO, conversation_id)) == RECENT

    return lambda: measure_ms(load_once)


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure))
