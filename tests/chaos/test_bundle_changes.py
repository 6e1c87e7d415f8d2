"""Fifty turns of a bundle while its tools change ten times a second, differently on each worker, and a worker dies."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS
from helpers.waiting import wait_until
from platform_harness.harness import Harness
from platform_harness.watcher import Watcher

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

EXTRA_ENV = {
    WORKER_BOUNDS: '{"lease_s": 4, "orphans_after_s": 4}',
    "WORKER_SLOTS": "16",
    "EVERTURN_MODEL": f"scripted:{Path(__file__).parent / 'change_scripts.toml'}",
}
WORKERS = ("worker-1", "worker-2")
TURNS = 50
MANIFEST = 'id = "desk"\n[host]\nprocesses = 40\n'
DESCRIPTOR = 'TOOLS_SPECS = [{"ref": "tools.py", "alias": "desk"}]\n'
TOOLS = '''
import asyncio
from everturn_sdk import tool

@tool(effect="pure")
async def version(pause_s: float) -> str:
    """The version of this code."""
    await asyncio.sleep(pause_s)
    return "version {version}."
'''


@dataclass
class Author:
    """Changes the bundle of one worker, whose temporary files are in `temporary`."""

    worker: str
    folder: Path
    temporary: Path
    log: Path
    versions: int = 0
    env: dict[str, str] = field(default_factory=dict[str, str])

    def write(self) -> None:
        self.versions += 1
        bundle = self.folder / "desk"
        bundle.mkdir(parents=True, exist_ok=True)
        (bundle / "tools.py").write_text(TOOLS.replace("{version}", f"{self.worker}-{self.versions}"))
        (bundle / "tools_descriptor.py").write_text(DESCRIPTOR)
        (bundle / "bundle.toml").write_text(MANIFEST)

    async def change(self, ended: asyncio.Event) -> None:
        """Now and then the author pauses for long enough that a version is loaded."""
        while not ended.is_set():
            for _ in range(random.randrange(5, 15)):
                self.write()
                await asyncio.sleep(0.1)
            loaded = self.count_loaded()
            async with asyncio.timeout(60):
                while self.count_loaded() == loaded and not ended.is_set():  # noqa: ASYNC110 - a log has no events
                    await asyncio.sleep(0.1)

    def count_loaded(self) -> int:
        return self.log.read_text().count("Loaded a bundle")

    def list_folders(self) -> list[Path]:
        return list(self.temporary.glob("everturn-bundle-*"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def authors(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Author]]:
    places, logs = tmp_path_factory.mktemp("authors"), harness.platform.home.logs
    authors = [Author(each, places / each, places / f"tmp-{each}", logs / f"{each}.log") for each in WORKERS]
    for author in authors:
        author.temporary.mkdir()
        author.write()
        author.env = {"BUNDLES_DIR": str(author.folder), "TMPDIR": str(author.temporary)}
    await asyncio.gather(*(harness.platform.restart(each.worker, extra_env=each.env) for each in authors))
    yield authors


async def run_turn(harness: Harness, number: int) -> tuple[Any, Watcher]:
    await asyncio.sleep(random.random() * 6)
    ingress = number % 2
    sent = await harness.clients[ingress].send_message("new", "script:versions please", bundle_id="desk")
    watcher = harness.watch(sent.conversation_id, ingress=ingress)
    return await watcher.wait_ended(sent.turn_id), watcher


@pytest.mark.slow
async def test_turns_keep_their_version_and_nothing_is_left(harness: Harness, authors: list[Author]) -> None:
    await wait_until(lambda: all(author.count_loaded() for author in authors))
    before = max(count_unix_sockets(harness.platform.pid(each)) for each in WORKERS)
    ended = asyncio.Event()
    changing = [asyncio.create_task(author.change(ended)) for author in authors]
    turns = [asyncio.create_task(run_turn(harness, number)) for number in range(TURNS)]
    try:
        for done, turn in enumerate(asyncio.as_completed(turns)):
            await turn
            if done == TURNS // 3:
                await harness.platform.kill_and_wait("worker-1", signal.SIGKILL)
                await harness.platform.restart("worker-1", extra_env=authors[0].env)
    finally:
        ended.set()
        await asyncio.gather(*changing)

    used: set[str] = set()
    results = [await each for each in turns]
    for turn, _ in results:
        assert (turn.outcome, turn.answer) == ("completed", "Seen.")
        seen = {step.result_preview.split("version ")[1].split(".")[0] for step in turn.steps}
        assert len(turn.steps) == 3
        assert len(seen) == 1, seen
        used |= seen
    assert len(used) > 2
    await asyncio.gather(*(harness.check_invariants(each.conversation_id, each) for _, each in results))
    await harness.close()

    pids = [harness.platform.pid(author.worker) for author in authors]
    await wait_until(lambda: [len(author.list_folders()) for author in authors] == [1, 1])
    await wait_until(lambda: [count_watchdogs(pid) for pid in pids] == [1, 1])
    # The workers of a machine share it.
    assert len(list(harness.platform.home.bundle_environments.glob("*/installed"))) == 1
    # Those of processes that have ended are closed. The encoder of memory search has two, and starts with a message.
    await wait_until(lambda: all(count_unix_sockets(pid) <= before + 2 for pid in pids))


def count_watchdogs(worker: int | None) -> int:
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found += parent == worker and b"watchdog.py" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
    return found


def count_unix_sockets(worker: int | None) -> int:
    inodes = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    links: list[str] = []
    for descriptor in Path(f"/proc/{worker}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(descriptor))
    return sum(link.startswith("socket:[") and link[8:-1] in inodes for link in links)
