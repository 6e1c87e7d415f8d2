"""The platform with real processes, for tests of what users see."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from platform_harness.harness import Harness

from everturn_local.supervision.platform import Platform

BOUNDS = '{"lease_s": 2, "orphans_after_s": 4}'
"""The history checker waits until nothing is left of what a program stored that was cancelled."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    """One Postgres, one Redis server, two ingresses and two workers with the scripted model and short leases."""
    script = Path(__file__).with_name("scripts.toml")
    env = {"EVERTURN_MODEL": f"scripted:{script}", WORKER_BOUNDS: BOUNDS}
    home = copy_home(tmp_path_factory.mktemp("platform"))
    async with Platform(home, ingresses=2, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        opened = Harness(platform)
        yield opened
        await opened.quit()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo_harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    """The platform as `make run` starts it, with two ingresses and the demo: nothing is forked or copied."""
    home = tmp_path_factory.mktemp("demo")
    env = {"EVERTURN_MODEL": "offline"}
    async with Platform(home, ingresses=2, workers=2, env=env, durable=False) as platform:
        opened = Harness(platform)
        yield opened
        await opened.quit()


@pytest.fixture(scope="module")
def make_harness() -> Callable[[Platform], Harness]:
    """For tests that start a platform with settings of their own."""
    return Harness
