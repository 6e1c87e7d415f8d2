"""A real Chromium before the whole platform, with the built web client and a fault proxy between the two."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from browsing.person import Person
from faults.proxy import FaultProxy
from parts.forks import ForkingSpawn
from parts.homes import copy_home
from playwright.async_api import Browser, async_playwright, expect
from stages.stage import Stage

from everturn_local.supervision.platform import Platform
from everturn_local.web.choice import open_web_client

SCRIPTS = Path(__file__).with_name("scripts.toml")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# The first four for machines without a screen or with root only; the others keep it from asking its maker for things.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SEEN_LIMIT_MS = 60_000
"""Until something is seen; a busy machine is no failure."""

expect.set_options(timeout=SEEN_LIMIT_MS)


def find_chromium() -> str:
    """The program. Fails the tests without one."""
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        pytest.fail(
            f"There is no Chromium here{f' at {named}' if named else ''}: apt-get install chromium.", pytrace=False
        )
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    chromium: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """One ingress that serves the page, and two workers. A module may say in `EXTRA_ENV` what they are told besides."""
    dist = await open_web_client(print).save_build()
    env = {
        "EVERTURN_MODEL": f"scripted:{SCRIPTS}",
        "WEB_DIST": str(dist),
        "STREAM_HEARTBEAT_S": "1",
        **getattr(request.module, "EXTRA_ENV", {}),
    }
    home = copy_home(tmp_path_factory.mktemp("platform"))
    async with Platform(home, ingresses=1, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        opened = Stage(platform)
        yield opened
        await opened.quit()


@pytest_asyncio.fixture(loop_scope="module")
async def link(stage: Stage) -> AsyncIterator[FaultProxy]:
    """What lies between the browser and the ingress."""
    address = urlsplit(stage.platform.urls[0])
    assert address.hostname is not None
    assert address.port is not None
    proxy = FaultProxy((address.hostname, address.port))
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def person(chromium: Browser, link: FaultProxy) -> AsyncIterator[Person]:
    """With the page open where a conversation begins; afterwards nothing must have gone wrong in it."""
    context = await chromium.new_context()
    context.set_default_timeout(SEEN_LIMIT_MS)
    opened = Person(await context.new_page(), f"http://127.0.0.1:{link.port}/")
    opened.watch()
    await opened.open()
    yield opened
    await context.close()
    assert opened.alarms == []
