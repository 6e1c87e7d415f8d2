"""P6: what the append of one turn's blocks costs against one tiny commit, and whether it grows with the timeline.

Prints `goal | ours | baseline | ratio | target | holds` rows, or JSON with --json. Needs nothing running: it starts its
own Postgres, which keeps its data safe (fsync on), in a folder that it removes.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import asyncpg

from everturn.model.block_bodies import CompletionBody, RoundStartBody, ThinkingBody, ToolCallBody, ToolResultBody
from everturn.model.blocks import Block, BlockDraft, BlockType, chain_blocks
from everturn.model.commits import Commit
from everturn.model.identity import Principal
from everturn.model.leases import Claim, EventCursor
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
SMALL, LARGE = 10, 10_000
TURN_BLOCKS = 20
SAMPLES = 200
PARAGRAPH = "The totals by region differ less than expected; north leads, south follows. " * 8


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table. Times in milliseconds, sizes in bytes."""

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
            return await timed(lambda: superuser.execute("INSERT INTO tiny VALUES (1)"))

        async def short_ms() -> float:
            """A new conversation for each sample: one that grew while it was measured would not stay short."""
            short = Appender(timelines, await open_conversation(ids, inbox, leases))
            await short.append(SMALL)
            return await timed(lambda: short.append(TURN_BLOCKS))

        async def long_ms() -> float:
            return await timed(lambda: long.append(TURN_BLOCKS))

        tiny, at_small, at_large = await interleave([tiny_ms, short_ms, long_ms])
        wal, payload = await measure_wal(superuser, long)
    await superuser.close()
    return [
        build_result(f"P6 append of {TURN_BLOCKS} blocks to {SMALL} vs one tiny commit, ms", at_small, tiny, 2.0),
        build_result(f"P6 append of {TURN_BLOCKS} blocks to {LARGE} vs one tiny commit, ms", at_large, tiny, 2.0),
        build_result(f"P6 append to {LARGE} blocks vs to {SMALL}, ms", at_large, at_small, 1.2),
        build_result("P6 WAL of the append vs its payload, bytes", wal, payload, 3.0),
    ]


def build_result(goal: str, ours: float, baseline: float, target: float) -> Result:
    ratio = ours / baseline
    return Result(goal, ours, baseline, round(ratio, 3), target, ratio <= target)


async def interleave(subjects: Sequence[Callable[[], Awaitable[float]]]) -> list[float]:
    """The median of each subject's samples, taken in turns so that noise hits all of them."""
    samples: list[list[float]] = [[] for _ in subjects]
    for _ in range(SAMPLES):
        for taken, subject in zip(samples, subjects, strict=True):
            taken.append(await subject())
    return [statistics.median(taken) for taken in samples]


async def timed(action: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    await action()
    return (time.perf_counter() - began) * 1_000


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
    main()
