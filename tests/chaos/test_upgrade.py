"""The version before and this one side by side on one database, while turns run and services are replaced.

`make failover TURNS=200 PREVIOUS=<commit>` plays it with so many turns, from that commit.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from faults.links import Links, open_links
from faults.load import DETACHING, SLOTS, TURNS, Load
from faults.versions import MixedSpawn, Previous, find_previous
from helpers.homes import copy_home
from platform_harness.harness import Harness

from everturn.events.model import StreamGap
from everturn_local.migrations import run_migrations
from everturn_local.settings import load_environment
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(200 + 3 * TURNS)]

ENVIRONMENT = {
    "EVERTURN_MODEL": f"scripted:{Path(__file__).with_name('scripts.toml')}",
    "WORKER_SLOTS": str(SLOTS),
    "QUEUE_MAX": str(100 * TURNS),
    "DRAIN_TIMEOUT_S": "10",
    "RATE_LIMITS_READS": "registered=off",
    "RATE_LIMITS_WRITES": "registered=off",
}


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A platform of the version before, whose programs are detached if it `detaches_runs`."""

    harness: Harness
    links: Links
    spawn: MixedSpawn
    detaches_runs: bool

    async def replace(self, name: str) -> None:
        """As in docs/operate.md: stop the old one, wait for its end, start the new one. Others get its clients."""
        self.spawn.renewed.add(name)
        front = self.links.front.get(name)
        if front is None:
            await self.harness.platform.restart(name)
            return
        (other,) = (link for link in self.links.front.values() if link is not front)
        with front.aimed_at(other.target):
            await self.harness.platform.restart(name)


@pytest_asyncio.fixture(loop_scope="module")
async def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Upgrade]:
    commit = find_previous()
    if commit is None:
        pytest.skip("this checkout has no history")
    previous = await asyncio.to_thread(Previous, tmp_path / "previous", commit)
    print(f"\nfrom {commit}, {'another' if previous.has_other_schema else 'the same'} schema")  # noqa: T201
    monkeypatch.setattr("everturn_local.supervision.platform.run_migrations", previous.run_migrations)
    home = tmp_path / "home"
    if not previous.has_other_schema:
        copy_home(home)
    env = ENVIRONMENT | (DETACHING if previous.detaches_runs else {})
    spawn = MixedSpawn(previous)
    async with AsyncExitStack() as stack:
        links = await stack.enter_async_context(open_links(ingresses=2, workers=2))
        platform = Platform(home, ingresses=2, workers=2, env=env, specs=links.build_specs, spawn=spawn)
        harness = Harness(await stack.enter_async_context(platform), urls=links.urls)
        stack.push_async_callback(harness.quit)
        yield Upgrade(harness, links, spawn, previous.detaches_runs)


@pytest.mark.slow
async def test_turns_run_on_while_every_service_is_replaced(upgrade: Upgrade) -> None:
    platform, load = upgrade.harness.platform, Load(upgrade.harness, detached=upgrade.detaches_runs)
    await load.start()
    began_at = time.monotonic()

    await asyncio.to_thread(run_migrations, platform.database.owner, env=load_environment())
    load.disturb()
    for name in ("worker-1", "worker-2", "ingress-1", "ingress-2"):
        await upgrade.replace(name)
    replaced_at = time.monotonic()
    watchers = await load.check()

    gaps = [each.data for watcher in watchers for each in watcher.seen if isinstance(each.data, StreamGap)]
    assert gaps == [], "a stream that breaks goes on where it was"
    print(  # noqa: T201 the figures of `make failover`
        f"{len(load.accepted)} turns: replaced in {replaced_at - began_at:.1f} s, all turns had ended "
        f"and checked {time.monotonic() - replaced_at:.1f} s later"
    )
