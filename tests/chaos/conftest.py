"""The platform with a fault proxy on every link, short leases and heartbeats, and a scripted model."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from faults.chaos import Chaos
from faults.links import Links, open_links
from helpers.followers import allow_files
from helpers.forks import INGRESS_BOUNDS, WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from platform_harness.harness import Harness

from everturn_client.backoff import Timings
from everturn_local.supervision.platform import Platform

SCRIPTS = Path(__file__).with_name("scripts.toml")
ENVIRONMENT = {
    "EVERTURN_MODEL": f"scripted:{SCRIPTS}",
    WORKER_BOUNDS: '{"lease_s": 3, "orphans_after_s": 4}',
    INGRESS_BOUNDS: '{"heartbeat_s": 1, "streams_of_user": 2000}',
    "DRAIN_TIMEOUT_S": "10",
    "RATE_LIMITS_READS": "registered=off,privileged=off",
    "RATE_LIMITS_WRITES": "registered=off,privileged=off",
}
TIMINGS = Timings(connect_s=2.0, answer_s=20.0, silence_s=4.0, max_delay_s=1.0, attempts=8, give_up_s=400.0)
"""A client that comes back quickly, and waits for a part that a busy machine starts slowly."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chaos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chaos]:
    """Two ingresses and two workers behind proxies. Redis keeps its file, as it should in production.

    A module can define further variables of its services in `EXTRA_ENV`, the `TIMINGS` of its clients, and its
    own `PLATFORM`, which gets the links.
    """
    allow_files(8192)
    home = copy_home(tmp_path_factory.mktemp("chaos"))
    env = {**ENVIRONMENT, **getattr(request.module, "EXTRA_ENV", {})}
    build = getattr(request.module, "PLATFORM", build_platform)
    async with (
        open_links(ingresses=2, workers=2) as links,
        build(home, links=links, ingresses=2, workers=2, env=env, spawn=ForkingSpawn()) as platform,
    ):
        timings = getattr(request.module, "TIMINGS", TIMINGS)
        harness = Harness(platform, urls=links.urls, timings=timings)
        yield Chaos(harness, links)
        await harness.quit()


def build_platform(home: Path, *, links: Links, **settings: Any) -> Platform:
    return Platform(home, specs=links.build_specs, **settings)


@pytest.fixture(scope="module")
def harness(chaos: Chaos) -> Harness:
    """The same harness, without its links."""
    return chaos.harness
