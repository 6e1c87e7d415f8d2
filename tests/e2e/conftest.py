"""The platform with real processes, for tests of what users see."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from parts.forks import WORKER_BOUNDS, ForkingSpawn
from parts.homes import copy_home
from stages.stage import Stage

from everturn_local.supervision.platform import Platform

BOUNDS = '{"lease_s": 2, "orphans_after_s": 4}'
"""The history checker waits until nothing is left of what a program stored that was cancelled."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One Postgres, one Redis server, two ingresses and two workers with the scripted model and short leases."""
    script = Path(__file__).with_name("scripts.toml")
    env = {"EVERTURN_MODEL": f"scripted:{script}", WORKER_BOUNDS: BOUNDS}
    home = copy_home(tmp_path_factory.mktemp("platform"))
    async with Platform(home, ingresses=2, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        opened = Stage(platform)
        yield opened
        await opened.quit()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo_stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The platform as `make run` starts it, with two ingresses and the demo: nothing is forked or copied."""
    home = tmp_path_factory.mktemp("demo")
    env = {"EVERTURN_MODEL": "offline"}
    async with Platform(home, ingresses=2, workers=2, env=env, durable=False) as platform:
        opened = Stage(platform)
        yield opened
        await opened.quit()


@pytest.fixture(scope="module")
def make_stage() -> Callable[[Platform], Stage]:
    """For tests that start a platform with settings of their own."""
    return Stage
