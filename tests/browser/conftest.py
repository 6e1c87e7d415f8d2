"""A real Chromium against the whole platform with the built web client, and a fault proxy between them.

All these tests share one platform and one browser; each person has a separate browser profile.
"""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from browsing import operator_tools
from browsing.forbidden_server import ForbiddenServer
from browsing.hostile_page import build_frames_page, build_hostile_page
from browsing.person import Person
from browsing.replies import build_scripts
from browsing.site import OtherSite
from browsing.users import BrowserUsers
from browsing.widgets import write_bundle
from faults.proxy import FaultProxy
from helpers.forks import INGRESS_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from platform_harness.harness import Harness
from playwright.async_api import Browser, async_playwright, expect

from everturn_local.supervision.platform import Platform
from everturn_local.web.choice import open_web_client

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# The first ones allow machines without a screen and running as root; the others stop Chromium's own network requests.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SEEN_LIMIT_MS = 120_000
"""How long an expectation may take; generous, because the machine may be busy."""
SMALL_CONTEXT_TOKENS = "24000"
"""Small, so that a few long messages exceed the model's context."""
CONFIG = """
[[tools]]
alias = "mail"
file = {file!r}
[tools.tools.send]
requires_approval = true

[[tools]]
alias = "gate"
file = {file!r}
[tools.tools.wait]
effect = "pure"
timeout_s = 300

[bundles.support]
title = "Support"
description = "Answers questions about orders and returns."
icon = "🛟"
instructions = "You answer questions about orders."
starters = ["script:plain, where is my order?", "Write a reply to:"]

[embed.bundles.support]
origins = [{origin!r}]
"""

expect.set_options(timeout=SEEN_LIMIT_MS)


def find_chromium() -> str:
    """The path of Chromium. Without it the tests are skipped, or fail in CI or if CHROMIUM is set."""
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        refuse = pytest.fail if named or os.environ.get("CI") else pytest.skip
        refuse(f"There is no Chromium here{f' at {named}' if named else ''}: apt-get install chromium.")
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stranger() -> AsyncIterator[ForbiddenServer]:
    """A foreign server, which nothing on the page may reach."""
    async with ForbiddenServer() as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site() -> AsyncIterator[OtherSite]:
    """A site of somebody else, which may embed the agent Support."""
    async with OtherSite() as opened:
        yield opened


@pytest.fixture(scope="session")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in this folder opens the gate of the same name for the turn that waits there."""
    return tmp_path_factory.mktemp("gates")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def harness(
    chromium: Browser, stranger: ForbiddenServer, site: OtherSite, gates: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Harness]:
    """One ingress that serves the page and accepts guests, and two workers with the scripted model."""
    dist = await open_web_client(print).save_build()
    folder = tmp_path_factory.mktemp("browser")
    scripts, config = folder / "scripts.toml", folder / "everturn.toml"
    pages = build_hostile_page(stranger.url, stranger.port), build_frames_page(stranger.port)
    scripts.write_text(build_scripts(*pages))
    write_bundle(folder / "bundles" / "support", url=stranger.url, port=stranger.port)
    config.write_text(CONFIG.format(file=str(Path(operator_tools.__file__)), origin=site.allowed))
    env = {
        "EVERTURN_MODEL": f"scripted:{scripts}",
        "EVERTURN_CONFIG": str(config),
        "BUNDLES_DIR": str(folder / "bundles"),
        "CONTEXT_MAX_TOKENS": SMALL_CONTEXT_TOKENS,
        "WEB_DIST": str(dist),
        INGRESS_BOUNDS: '{"heartbeat_s": 1}',
        "GUEST_SCOPES": "default/default",
        operator_tools.GATES: str(gates),
    }
    home = copy_home(tmp_path_factory.mktemp("platform"))
    async with Platform(home, ingresses=1, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        opened = Harness(platform)
        yield opened
        await opened.quit()


@pytest_asyncio.fixture(loop_scope="session")
async def link(harness: Harness) -> AsyncIterator[FaultProxy]:
    """The fault proxy between the browser and the ingress."""
    address = urlsplit(harness.platform.urls[0])
    assert address.hostname is not None
    assert address.port is not None
    proxy = FaultProxy((address.hostname, address.port))
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def users(chromium: Browser, link: FaultProxy) -> AsyncIterator[BrowserUsers]:
    """Opens pages for people; at the end none of them may have reported an error."""
    opened = BrowserUsers(chromium, f"http://127.0.0.1:{link.port}/", SEEN_LIMIT_MS)
    yield opened
    await opened.leave()
    assert opened.alarms == []


@pytest_asyncio.fixture(loop_scope="session")
async def person(users: BrowserUsers) -> Person:
    """A person with the page for a new conversation open."""
    return await users.open_page()
