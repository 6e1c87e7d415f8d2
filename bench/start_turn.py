"""P5: how long an accepted turn waits for a free worker, and how many a worker starts, against a bare hand-off.

Everturn's path starts with the commit of the accepted message, goes through the doorbell to the claim loop, and ends
when the turn starts to run. The bare hand-off is a list in the same Redis, whose reader claims a row of the same
Postgres with one fenced UPDATE. Both sides of both are in this process. Each turn is of a tenant of its own, so that no
bound defers it. Needs nothing running: it starts its own servers in folders that it removes. Postgres keeps its data
safe (fsync on); the rows without fsync, which have no goal, show what the disk hides.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import redis.asyncio
from helpers.databases import run_throwaway_database
from helpers.goals import Goal, build_goal, measure_medians, run_goals
from turn_harness.harness import Bench

from chat_proc.worker.heartbeat import Heartbeat
from chat_proc.worker.loop import ClaimLoop, Slots, build_claim_bounds
from chat_proc.worker.presence import TurnDurationAverage
from chat_proc.worker.ringing import Ringer
from chat_proc.worker.runner import RunnerDependencies, TurnRunner
from everturn.core.clock import SystemClock
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Principal
from everturn.core.lease_timing import DEFAULT_LEASE_S
from everturn.postgres.pool import open_database
from everturn.queue.model import Doorbells
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn.turns.inbox import IncomingMessage, Receipt
from everturn.turns.model import Claim
from everturn.turns.postgres_inbox import PostgresInbox
from everturn.turns.postgres_leases import PostgresLeases
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.servers.redis import EmbeddedRedis
from everturn_testing.core import SequentialIds
from everturn_testing.turns.reading import NoSweeps

SLOTS = 16
WARMUPS = 20
RATES = 5
LIMIT_S = 60.0
BARE_WAIT_S = 0.5
CREATE = "CREATE TABLE bare (id text PRIMARY KEY, state text, owner text, fence bigint, expires_at timestamptz)"
INSERT = "INSERT INTO bare VALUES ($1, 'queued', NULL, 0, NULL)"
CLAIM = """
UPDATE bare SET state = 'running', owner = 'bench', fence = fence + 1, expires_at = clock_timestamp() + $2
 WHERE id = $1 AND (state = 'queued' OR expires_at < clock_timestamp())
RETURNING fence
"""


class Started:
    """Notes what has started; a measurement waits for it."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._changed = asyncio.Event()

    def note(self, started: str) -> None:
        self._ids.add(started)
        self._changed.set()

    async def wait_for(self, expected: Sequence[str]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not self._ids.issuperset(expected):
                self._changed.clear()
                await self._changed.wait()


class StartOnlyRunner(TurnRunner):
    """Ends as soon as it begins to run. Its lease stays, so that nothing but starts is measured."""

    def __init__(self, parts: RunnerDependencies, started: Started, claim: Claim, requested_at_s: float) -> None:
        super().__init__(parts, claim, requested_at_s)
        self._started = started
        self._conversation_id = claim.lease.conversation_id

    async def run(self) -> bool:
        self._started.note(self._conversation_id)
        return False


class Ours:
    """Accepts messages and rings for them; a claim loop runs beside it."""

    def __init__(self, inbox: PostgresInbox, doorbells: Doorbells, started: Started) -> None:
        self._inbox = inbox
        self._doorbells = doorbells
        self._started = started
        self._ids = SequentialIds()

    async def hand_off(self, count: int) -> float:
        """Accept turns; return the seconds from then until all of them have started."""
        accepted = [await self._accept() for _ in range(count)]
        began = time.perf_counter()
        for receipt in accepted:
            await self._doorbells.ring(receipt.lane, receipt.conversation_id)
        await self._started.wait_for([receipt.conversation_id for receipt in accepted])
        return time.perf_counter() - began

    async def _accept(self) -> Receipt:
        conversation_id = self._ids.conversation()
        message = IncomingMessage(conversation_id, True, "Hello.", (), self._ids.turn(), self._ids.signal())
        return await self._inbox.accept_message(Principal(conversation_id, "bench", "bench"), message, None)


class Bare:
    """A list and one UPDATE; `run` is a task of its own, until `end`."""

    def __init__(self, pool: Any, client: Any) -> None:
        self._pool = pool
        self._client = client
        self._started = Started()
        self._ended = False
        self._count = 0

    async def hand_off(self, count: int) -> float:
        """Insert rows; return the seconds from then until all of them have been claimed."""
        accepted = [await self._accept() for _ in range(count)]
        began = time.perf_counter()
        for work in accepted:
            await self._client.rpush("bare", work)
        await self._started.wait_for(accepted)
        return time.perf_counter() - began

    async def _accept(self) -> str:
        self._count += 1
        await self._pool.execute(INSERT, work := f"work-{self._count}")
        return work

    def end(self) -> None:
        self._ended = True

    async def run(self) -> None:
        while not self._ended:
            reply = await self._client.execute_command("BLMPOP", BARE_WAIT_S, 1, "bare", "LEFT")
            if reply is not None:
                work = reply[1][0].decode()
                assert await self._pool.fetchval(CLAIM, work, timedelta(seconds=DEFAULT_LEASE_S)) == 1
                self._started.note(work)


def measure(samples: int, burst: int) -> list[Goal]:
    return [*measure_with(samples, burst, durable=True), *measure_with(samples, burst, durable=False)]


def measure_with(samples: int, burst: int, *, durable: bool) -> list[Goal]:
    with tempfile.TemporaryDirectory(prefix="everturn-bench-") as name, run_throwaway_database(durable=durable) as urls:
        folder = Path(name)
        server = EmbeddedRedis(folder / "redis", password="bench", log=folder / "redis.log", durable=False)
        server.start()
        try:
            our_ms, bare_ms, our_rate, bare_rate = asyncio.run(measure_on(urls, server.url, samples, burst))
        finally:
            server.stop()
    wait, rate = "from accepted to started vs a bare hand-off, ms", f"turns/s started of {burst} vs a bare hand-off"
    if not durable:
        return [
            build_goal(f"without fsync: {wait}", our_ms, bare_ms),
            build_goal(f"without fsync: {rate}", our_rate, bare_rate),
        ]
    return [
        build_goal(f"P5 {wait}", our_ms, bare_ms, 1.5),
        build_goal(f"P5 {rate}", our_rate, bare_rate, 0.5, at_least=True),
    ]


async def measure_on(urls: DatabaseUrls, redis_url: str, samples: int, burst: int) -> list[float]:
    """Milliseconds of ours and of the bare hand-off, and turns a second of both."""
    async with run_ours(urls, redis_url) as ours, run_bare(urls, redis_url) as bare:

        async def start_ms(subject: Ours | Bare) -> float:
            return 1e3 * await subject.hand_off(1)

        async def start_rate(subject: Ours | Bare) -> float:
            return burst / await subject.hand_off(burst)

        return [
            *await measure_medians([lambda: start_ms(ours), lambda: start_ms(bare)], samples, warmups=WARMUPS),
            *await measure_medians([lambda: start_rate(ours), lambda: start_rate(bare)], RATES),
        ]


@asynccontextmanager
async def run_ours(urls: DatabaseUrls, redis_url: str) -> AsyncGenerator[Ours]:
    """With a claim loop that waits for doorbells."""
    async with (
        open_database(urls.ingress, pool_size=1, application_name="bench") as ingress,
        open_database(urls.worker, pool_size=SLOTS, application_name="bench") as worker,
        open_redis_drivers(redis_url, name="ingress") as ringing,
        open_redis_drivers(redis_url, name="worker") as waiting,
    ):
        started = Started()
        loop = build_loop(PostgresLeases(worker, owner="bench", ttl_s=DEFAULT_LEASE_S), waiting, started)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(loop.run())
            yield Ours(PostgresInbox(ingress), ringing.doorbells, started)
            loop.drain()


def build_loop(leases: PostgresLeases, drivers: RedisDrivers, started: Started) -> ClaimLoop:
    parts, clock = Bench().hire().parts, SystemClock()
    return ClaimLoop(
        leases=leases,
        claims=leases,
        clock=clock,
        bounds=lambda: build_claim_bounds(SLOTS, SLOTS, SLOTS),
        doorbells=drivers.doorbells,
        ringer=Ringer(drivers.doorbells, NoSweeps()),
        bells=drivers.inbox_bells,
        heartbeat=Heartbeat(leases, clock, lease_s=DEFAULT_LEASE_S),
        build_runner=lambda claim, requested_at_s: StartOnlyRunner(parts, started, claim, requested_at_s),
        slots=Slots(SLOTS, extra=SLOTS),
        turn_average=TurnDurationAverage(),
        failpoints=Failpoints(""),
        ring_indexer=lambda: None,
    )


@asynccontextmanager
async def run_bare(urls: DatabaseUrls, redis_url: str) -> AsyncGenerator[Bare]:
    client: Any = redis.asyncio.Redis.from_url(redis_url)
    pool: Any = await asyncpg.create_pool(urls.superuser, min_size=2, max_size=2)
    await pool.execute(CREATE)
    bare = Bare(pool, client)
    running = asyncio.create_task(bare.run())
    try:
        yield bare
    finally:
        bare.end()
        await running
        await pool.close()
        await client.aclose()


if __name__ == "__main__":
    sys.exit(run_goals(__doc__, measure, samples=300, burst=200))
