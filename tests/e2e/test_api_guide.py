"""docs/api.md, played from top to bottom by a reader's terminal against the whole platform."""

import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from documents.blocks import Block, fits, read_blocks
from documents.shell import Shell
from helpers.forks import INGRESS_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from helpers.node_packages import find_node
from helpers.socketio_js import install_client

from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).resolve().parents[2]
START, *PLAYED = read_blocks((ROOT / "docs" / "api.md").read_text())


def read_environment(start: Block) -> dict[str, str]:
    """The variables that the page sets before `make run`."""
    *settings, make, run = shlex.split(start.text)
    assert (make, run) == ("make", "run")
    return dict(setting.split("=", 1) for setting in settings)


@pytest.fixture(scope="module")
def packages(pytestconfig: pytest.Config) -> Path:
    """Where a reader's `npm install socket.io-client` has put it."""
    return install_client(pytestconfig.rootpath / ".pytest_cache" / "socketio_js") / "node_modules"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> AsyncIterator[Shell]:
    """A terminal in the checkout, beside a platform that was started as the page says."""
    home, place = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("reader")
    # A stream that the reader leaves is noticed with the next heartbeat.
    env = {**read_environment(START), INGRESS_BOUNDS: '{"heartbeat_s": 1}'}
    (place / "node_modules").symlink_to(packages)
    async with Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        # Behind all else: `make` must find the Python that made the environments.
        path = os.pathsep.join([os.environ["PATH"], str(find_node().program.parent)])
        seen = {"EVERTURN_URL": platform.urls[0], "EVERTURN_HOME": str(home), "TMPDIR": str(place), "PATH": path}
        async with Shell(ROOT, place, {**os.environ, **seen}) as shell:
            yield shell


@pytest.mark.timeout(500)
async def test_the_documented_output_matches(reader: Shell) -> None:
    for block in PLAYED:
        printed = await reader.play(block)

        assert fits(block.shown or "", printed), f"docs/api.md:{block.line} printed:\n{printed}"
