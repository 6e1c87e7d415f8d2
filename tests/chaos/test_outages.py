"""Redis fails over, PgBouncer restarts and the object store is away, each under load.

All are slow: `make failover TURNS=200 SEED=1` plays them with so many turns. The seed chooses the moments.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from faults.chaos import Chaos, check_refused
from faults.load import DETACHING, PATIENT, SLOTS, TURNS, Load
from faults.outages import OutagePlatform
from faults.proxy import FaultProxy
from helpers.forks import INGRESS_BOUNDS
from helpers.pgbouncer import open_pgbouncer
from helpers.waiting import wait_until
from platform_harness.watcher import Watcher

from everturn.events.model import StreamGap
from everturn_local.ports import LOOPBACK
from everturn_local.servers.databases import DATABASE

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(200 + 3 * TURNS),
]


PLATFORM = OutagePlatform
EXTRA_ENV = {"WORKER_SLOTS": str(SLOTS), "QUEUE_MAX": str(100 * TURNS), INGRESS_BOUNDS: "{}", **DETACHING}
TIMINGS = PATIENT
OUTAGE_S = 4.0
"""Longer than a lease, which lasts 3 s here."""
CONNECTIONS = 40
"""Of PgBouncer to Postgres, for each role. Together they are fewer than Postgres accepts."""


async def lose(load: Load, platform: OutagePlatform) -> None:
    await platform.lose_primary()
    await asyncio.sleep(load.dice.uniform(0, OUTAGE_S))
    await platform.promote()


async def lose_unreplicated(load: Load, platform: OutagePlatform) -> None:
    """The replica lacks what was written in the last moments."""
    platform.to_replica.silence()
    await asyncio.sleep(load.dice.uniform(0.5, 1.5))
    await lose(load, platform)


async def lose_all(load: Load, platform: OutagePlatform) -> None:
    """What takes over is empty."""
    await platform.lose_primary()
    await asyncio.sleep(load.dice.uniform(0, OUTAGE_S))
    await platform.promote(empty=True)


async def switch(load: Load, platform: OutagePlatform) -> None:
    """As for maintenance: nothing is lost, and connections to the former primary, which rejects writes, stay open."""
    await platform.switch()


@pytest.mark.parametrize("fault", [lose, lose_unreplicated, lose_all, switch])
async def test_turns_survive_a_failover_of_redis(
    chaos: Chaos, fault: Callable[[Load, OutagePlatform], Awaitable[None]]
) -> None:
    platform, load = chaos.platform, Load(chaos.harness, detached=True)
    assert isinstance(platform, OutagePlatform)
    await platform.join()
    await load.start()

    load.disturb()
    await asyncio.sleep(load.dice.random())
    broken_at = time.monotonic()
    await fault(load, platform)
    repaired_at = time.monotonic()
    watchers = await load.check()

    if fault is switch:
        assert find_gaps(watchers) == []
    load.report(f"Redis, {fault.__name__}", broken_at, repaired_at)
    await chaos.harness.close()


async def test_turns_run_through_a_pgbouncer_that_restarts(chaos: Chaos) -> None:
    platform, links = chaos.platform, chaos.links.of("postgres")
    load = Load(chaos.harness, detached=True)
    urls = platform.database.ingress, platform.database.worker
    with open_pgbouncer(*urls, connections=CONNECTIONS) as bouncer:
        homes = [link.target for link in links]
        for link in links:
            link.target = LOOPBACK, bouncer.port
            link.cut()
        await load.start()

        load.disturb()
        bouncer.reload()
        await asyncio.sleep(load.dice.random())
        broken_at = time.monotonic()
        await asyncio.to_thread(bouncer.kill)
        await asyncio.sleep(load.dice.uniform(0, OUTAGE_S))
        await asyncio.to_thread(bouncer.start)
        repaired_at = time.monotonic()
        watchers = await load.check()
        for link, home in zip(links, homes, strict=True):
            link.target = home
            link.cut()

    assert find_gaps(watchers) == [], "a stream that breaks goes on where it was"
    load.report("PgBouncer restarted", broken_at, repaired_at)
    await chaos.harness.close()


@pytest.mark.parametrize("break_link", [FaultProxy.refuse, FaultProxy.silence])
async def test_turns_keep_their_files_while_the_bucket_is_away(
    chaos: Chaos, tmp_path: Path, break_link: Callable[[FaultProxy], None]
) -> None:
    platform, file = chaos.platform, tmp_path / "regions.csv"
    assert isinstance(platform, OutagePlatform)
    file.write_text("region,revenue\nNorth,240.50\n")
    load = Load(chaos.harness, texts=("script:write please", "script:brisk please"), files=[file])
    await load.start()

    load.disturb()
    await asyncio.sleep(load.dice.random())
    broken_at = time.monotonic()
    break_link(platform.to_s3)
    refused = await chaos.send_file()
    await asyncio.sleep(load.dice.uniform(0, OUTAGE_S))
    platform.to_s3.heal(cut=True)
    repaired_at = time.monotonic()
    watchers = await load.check()

    check_refused(refused)
    assert find_gaps(watchers) == []
    sql = "SELECT object_key FROM artifact"
    named = set((await asyncio.to_thread(platform.postgres.run_sql, sql, database=DATABASE)).split())
    # What the store took although nobody heard of it is deleted by a worker.
    await wait_until(lambda: platform.load_keys() == named)
    load.report(f"the bucket away, {break_link.__name__}", broken_at, repaired_at)
    await chaos.harness.close()


def find_gaps(watchers: list[Watcher]) -> list[StreamGap]:
    return [each.data for watcher in watchers for each in watcher.seen if isinstance(each.data, StreamGap)]
