"""A project in git with real processes: its turns are commits, and a push is made once, whichever process dies."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.git_sources import GitSource
from helpers.homes import copy_home

from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]
WORKER = "worker-1"
ANSWER = {"action": "complete", "notes": "", "final_answer": "Done."}


def call(tool_id: str, **params: Any) -> dict[str, Any]:
    return {"action": "call_tool", "notes": "", "tool_call": {"tool_id": tool_id, "params": params}}


def write(path: str, text: str) -> dict[str, Any]:
    return call("react.write", path=f"files/{path}", channel="internal", content=text)


def script(when: str, *acts: dict[str, Any]) -> str:
    rounds = "".join(
        f"[[scripts.rounds]]\nreply = '''<channel:action>{json.dumps(act)}</channel:action>'''\n"
        for act in (*acts, ANSWER)
    )
    return f"[[scripts]]\nwhen = '{when}'\n{rounds}"


SCRIPTS = "".join(
    [
        script("script:begin", write("src/app.py", "one\n"), write("notes.md", "# Notes\n")),
        script("script:change", write("src/app.py", "two\n"), call("git.remove", paths=["notes.md"])),
        script(
            "script:publish",
            call("git.import", paths=["README.md"]),
            write("README.md", "# The shop\n"),
            call("git.publish", branch="agents/readme", message="Name the shop"),
        ),
    ]
)


@dataclass
class Project:
    """The platform with one worker, and the repository outside."""

    harness: Any
    platform: Any
    source: GitSource

    async def say(self, text: str, conversation: str = "new") -> tuple[Any, Any]:
        sent = await self.harness.clients[0].send_message(conversation, text, bundle_id="coder")
        return sent, self.harness.watch(sent.conversation_id)

    async def clone(self, conversation: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
        url = f"{self.platform.urls[0]}/conversations/default/default/{conversation}/workspace.git"
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull}
        command = ["git", "clone", "--quiet", url, str(folder)]
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, env=environment, timeout=60)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def project(tmp_path_factory: pytest.TempPathFactory, make_harness: Any) -> AsyncIterator[Project]:
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    source = GitSource(files / "shop")
    source.write("README.md", "# Shop\n")
    source.commit()
    bundle = files / "bundles" / "coder"
    bundle.mkdir(parents=True)
    (bundle / "instructions.md").write_text("You write programs.")
    workspace = f'[workspace]\nmode = "git"\nrepository = "{source.url}"\npublish = "agents/*"\n'
    (bundle / "bundle.toml").write_text(f'id = "coder"\ntitle = "Coder"\n{workspace}')
    scripts = files / "scripts.toml"
    scripts.write_text(SCRIPTS)
    env = {
        "EVERTURN_MODEL": f"scripted:{scripts}",
        "BUNDLES_DIR": str(files / "bundles"),
        "GIT_HOSTS": "file:",
        WORKER_BOUNDS: '{"lease_s": 2, "orphans_after_s": 4}',
    }
    async with Platform(
        home, ingresses=1, workers=1, env=env, durable=False, auto_restart=False, spawn=ForkingSpawn()
    ) as platform:
        harness = make_harness(platform)
        yield Project(harness, platform, source)
        await harness.quit()


async def test_the_commits_of_two_turns_are_cloned_until_the_conversation_is_erased(
    project: Project, tmp_path: Path
) -> None:
    sent, watcher = await project.say("script:begin")
    conversation = sent.conversation_id
    await watcher.wait_ended(sent.turn_id)
    # The worker dies after the first of the second turn's calls; another one goes on.
    await project.platform.restart(WORKER, extra_env={"FAILPOINT": "turn.after_c2:1:kill"})
    again = await project.harness.clients[0].send_message(conversation, "script:change")
    assert await project.platform.wait_exit(WORKER) == -signal.SIGKILL
    await project.platform.restart(WORKER)
    await watcher.wait_ended(again.turn_id)

    cloned = await project.clone(conversation, tmp_path / "clone")

    assert cloned.returncode == 0, cloned.stderr
    history = GitSource(tmp_path / "clone", exists=True)
    assert history.git("log", "--format=%s").splitlines() == ["script:change", "script:begin"]
    assert history.git("ls-tree", "-r", "--name-only", "HEAD").split() == ["src/app.py"]
    assert history.git("ls-tree", "-r", "--name-only", "HEAD^").split() == ["notes.md", "src/app.py"]
    assert history.git("show", "HEAD:src/app.py") == "two"
    await project.harness.check_invariants(conversation, watcher)
    await project.harness.close()

    await project.harness.clients[0].delete_conversation(conversation)
    refused = await project.clone(conversation, tmp_path / "gone")
    assert refused.returncode != 0 and b"could not read Username" in refused.stderr


async def test_a_push_is_made_once_if_its_worker_is_killed_after_it(project: Project) -> None:
    sent, watcher = await project.say("script:publish")
    await watcher.wait_until(lambda seen: (turn := seen.turn(sent.turn_id)) and turn.status == "waiting")
    (asked,) = watcher.turn(sent.turn_id).approvals
    assert asked.details.splitlines()[-2:] == [
        "1 file: 1 changed.",
        "changed README.md (+1 -1 lines, 11 bytes)",
    ]
    await project.platform.restart(WORKER, extra_env={"FAILPOINT": "turn.before_c2:1:kill"})

    await project.harness.clients[0].answer_approval(sent.conversation_id, asked.approval_id, "approve")
    assert await project.platform.wait_exit(WORKER) == -signal.SIGKILL
    pushed = project.source.git("rev-parse", "agents/readme")
    await project.platform.restart(WORKER)
    turn = await watcher.wait_ended(sent.turn_id)

    assert [(step.tool_id, step.status) for step in turn.steps][-1] == ("git.publish", "completed")
    assert project.source.git("rev-parse", "agents/readme") == pushed
    assert project.source.git("rev-list", "--count", "main..agents/readme") == "1"
    await project.harness.check_invariants(sent.conversation_id, watcher)
    await project.harness.close()
