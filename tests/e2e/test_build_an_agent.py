"""docs/build-an-agent.md, played from top to bottom by an author's terminal; a second one runs the agent."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from documents.blocks import Block, fits, read_blocks
from documents.shell import Shell
from helpers.waiting import wait_until

from chat_proc.bundles.bundle import read_folder
from chat_proc.bundles.folders import BundleFolders
from chat_proc.settings import load_config
from everturn_client.client import EverturnClient
from everturn_local.ports import load_free_port

pytestmark = [pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "examples" / "build-an-agent.toml"
BLOCKS = read_blocks((ROOT / "docs" / "build-an-agent.md").read_text())
RUN = "everturn bundle run support\n"
BOOK = 'everturn chat "Please book'


@asynccontextmanager
async def run_agent(block: Block, folder: str, env: dict[str, str]) -> AsyncIterator[str]:
    """The second terminal: what it has printed once the platform is ready. Ctrl-C ends it."""
    program = str(ROOT / ".venv" / "bin" / "everturn")
    words = block.text.split()[1:]
    running = await asyncio.create_subprocess_exec(program, *words, cwd=folder, env=env, stdout=PIPE, stderr=STDOUT)
    assert running.stdout is not None
    try:
        async with asyncio.timeout(400):
            yield (await running.stdout.readuntil(b"Ctrl-C stops everything.")).decode()
        running.send_signal(signal.SIGINT)
        rest = (await asyncio.wait_for(running.stdout.read(), 60)).decode()
        assert (await running.wait(), rest.rstrip().endswith("stopped")) == (0, True), rest
    finally:
        if running.returncode is None:
            running.kill()


@pytest.mark.slow
@pytest.mark.timeout(500)
async def test_an_author_makes_tries_and_hands_over_an_agent(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<!doctype html>")
    port = load_free_port()
    env = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "EVERTURN_HOME": str(tmp_path / "home"),
        "EVERTURN_MODEL": f"scripted:{SCRIPT}",
        "EVERTURN_URL": f"http://127.0.0.1:{port}",
        "PORT": str(port),
        "WEB_DIST": str(tmp_path / "web"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    at_run = next(number for number, block in enumerate(BLOCKS) if block.text == RUN)

    async with Shell(ROOT, tmp_path, env) as author:
        await play(author, BLOCKS[:at_run])
        folder = (await author.play(Block(0, "bash", "pwd\n"))).strip()
        async with run_agent(BLOCKS[at_run], folder, env) as printed:
            check(BLOCKS[at_run], printed)
            logs = sorted((tmp_path / "home" / "logs").glob("worker-*.log"))
            async with EverturnClient(env["EVERTURN_URL"]) as person:
                for block in BLOCKS[at_run + 1 :]:
                    if "everturn chat" in block.text and block.text != BLOCKS[at_run + 1].text:
                        await wait_loaded(Path(folder, "support"), logs)
                    approving = asyncio.create_task(approve(person)) if block.text.startswith(BOOK) else None
                    check(block, await author.play(block))
                    if approving is not None:
                        await approving

    config = load_config(Path(folder, "everturn.toml"))
    bundle = BundleFolders(Path(folder), config.bundles, config.ai.default_bundle).scan()["support"].bundle
    assert bundle is not None
    about = bundle.manifest
    assert (config.ai.default_bundle, about.title, len(about.roles)) == ("support", "Spoke & Chain support", 4)
    assert (about.limits.cost_usd, about.limits.wall_time_s, about.agent.max_iterations) == (0.2, 300, 8)


async def wait_loaded(folder: Path, logs: list[Path]) -> None:
    """Until the workers have loaded what is in the folder: a busy machine needs longer than a reader waits."""
    digest = read_folder(folder).digest[:12]
    await wait_until(lambda: all(digest in log.read_text() for log in logs))


async def approve(person: EverturnClient) -> None:
    """What the reader types at the question."""
    async with asyncio.timeout(60):
        while True:
            page = await person.list_conversations()
            conversation_id = page.items[0].conversation_id
            state = await person.fetch(conversation_id)
            if state.turns and (asked := state.turns[-1].approvals):
                await person.answer_approval(conversation_id, asked[0].approval_id, "approve")
                return
            await asyncio.sleep(0.3)


async def play(author: Shell, blocks: list[Block]) -> None:
    for block in blocks:
        check(block, await author.play(block))


def check(block: Block, printed: str) -> None:
    assert fits(block.shown or "", printed), f"docs/build-an-agent.md:{block.line} printed:\n{printed}"
