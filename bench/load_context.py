"""P7: what loading the context at a turn's start costs, and whether it grows with the conversation.

A summary covers all but the last turns. Prints `goal | ours | baseline | ratio | target | holds` rows, or JSON with
--json. Needs nothing running: it starts its own Postgres in a folder that it removes.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncpg

from everturn.model.block_bodies import Body, RangeSummaryBody, ToolResultBody
from everturn.model.blocks import GENESIS_HASH, BlockDraft, BlockType, chain_blocks
from everturn.model.commits import Commit
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.model.leases import Claim, EventCursor
from everturn.model.refs import named_artifact_ref, range_summary_ref
from everturn.ports.inbox import IncomingMessage
from everturn.postgres.database import open_database
from everturn.postgres.inbox import PostgresInbox
from everturn.postgres.leases import PostgresLeases
from everturn.postgres.timelines import PostgresTimelines
from everturn.testing.sequential_ids import SequentialIds
from everturn_local.home import save_home, save_secrets
from everturn_local.migrations import run_migrations
from everturn_local.servers.databases import DatabaseUrls, build_urls, save_database, save_roles
from everturn_local.servers.postgres import EmbeddedPostgres
from everturn_local.settings import load_environment

TS = "2026-03-01T12:00:00.000Z"
WHO = Principal("bench", "bench", "bench")
SMALL, LARGE = 1_000, 10_000
RECENT = 120
"""Blocks behind the range of the last summary: some turns of ordinary size."""
SUMMARIES_EVERY = 200
SAMPLES = 200
TEXT = "The totals by region differ less than expected; north leads, south follows. " * 12


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table; times in milliseconds."""

    goal: str
    ours: float
    baseline: float
    ratio: float
    target: float
    holds: bool


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true", help="one JSON array instead of a table")
    as_json = arguments.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # the server runs as another user when we are root
        results = run_with_server(Path(folder))
    if as_json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        print("goal | ours | baseline | ratio | target | holds")
        for row in results:
            print(f"{row.goal} | {row.ours:.3f} | {row.baseline:.3f} | {row.ratio:.2f} | {row.target} | {row.holds}")
    sys.exit(0 if all(result.holds for result in results) else 1)


def run_with_server(folder: Path) -> list[Result]:
    home = save_home(folder)
    passwords = save_secrets(home)
    server = EmbeddedPostgres(home.postgres, password=passwords.postgres)
    server.start()
    try:
        save_roles(server, passwords)
        save_database(server)
        urls = build_urls(server, passwords)
        run_migrations(urls.owner, env=load_environment())
        return asyncio.run(measure(urls))
    finally:
        server.stop()


async def measure(urls: DatabaseUrls) -> list[Result]:
    superuser = await asyncpg.connect(urls.superuser)
    async with (
        open_database(urls.ingress, pool_size=1, application_name="bench") as ingress,
        open_database(urls.worker, pool_size=1, application_name="bench") as worker,
    ):
        ids, timelines = SequentialIds(), PostgresTimelines(worker)
        inbox, leases = PostgresInbox(ingress, share=1_000_000), PostgresLeases(worker, owner="bench")
        few, many = [await write(size, ids, inbox, leases, timelines) for size in (SMALL, LARGE)]
        await superuser.execute("VACUUM ANALYZE")
        at_few, at_many = await interleave(timelines, (few, many))
        whole = await timed(timelines, many, whole=True)
    await superuser.close()
    ratio = at_many / at_few
    goal = f"P7 context of {LARGE} blocks vs of {SMALL}, ms (all {LARGE} blocks: {whole:.0f} ms)"
    return [Result(goal, at_many, at_few, round(ratio, 3), 1.3, ratio <= 1.3)]


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


async def interleave(timelines: PostgresTimelines, conversations: Sequence[ConversationId]) -> list[float]:
    """The median for each conversation, taken in turns so that noise hits all of them."""
    samples: list[list[float]] = [[] for _ in conversations]
    for _ in range(SAMPLES):
        for taken, conversation_id in zip(samples, conversations, strict=True):
            taken.append(await timed(timelines, conversation_id))
    return [statistics.median(taken) for taken in samples]


async def timed(timelines: PostgresTimelines, conversation_id: ConversationId, *, whole: bool = False) -> float:
    """Milliseconds of one load."""
    load = timelines.load_blocks if whole else timelines.load_recent_blocks
    began = time.perf_counter()
    blocks = await load(WHO, conversation_id)
    took = (time.perf_counter() - began) * 1_000
    assert whole or len(blocks) == RECENT
    return took


if __name__ == "__main__":
    main()
