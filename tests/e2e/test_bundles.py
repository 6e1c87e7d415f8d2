"""Bundles in real processes: their content changes, breaks and disappears while turns run and wait."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from helpers.admins import open_admin
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home

from chat_proc.bundles.versions import SCAN_S
from everturn_client.errors import ProblemError
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
LIMIT_S = 60
VERSIONS = ("first", "second")


def reply(**fields: Any) -> str:
    return f"[[scripts.rounds]]\nreply = '''<channel:action>{json.dumps(fields)}</channel:action>'''\n"


def final(text: str) -> str:
    return reply(action="complete", notes="", final_answer=text)


def call(tool_id: str, **params: Any) -> str:
    return reply(action="call_tool", notes="", tool_call={"tool_id": tool_id, "params": params})


def script(when: str, shows: tuple[str, ...], *rounds: str) -> str:
    return f"[[scripts]]\nwhen = '{when}'\nshows = {json.dumps(shows)}\n{''.join(rounds)}"


def build_scripts() -> str:
    """A model that answers as the instructions say, which it sees in every request."""
    write = call("react.write", path="files/a.md", channel="canvas", kind="file", content="aaa")
    scripts = [script("three rounds", (), write, write, final("All three."))]
    for version in VERSIONS:
        scripts += [
            script("mail", (f"The {version} version.", "It is sent."), final(f"Sent by the {version}.")),
            script("mail", (f"The {version} version.",), call("mail.send", to="ann")),
            script("", (f"The {version} version.",), final(f"The {version} answers.")),
        ]
    return "".join([*scripts, script("", (), final("The default answers."))])


@dataclass
class Desk:
    """The platform, the folder of the bundle `desk`, and what an administrator sees."""

    harness: Any
    folder: Path
    admin: httpx2.AsyncClient
    watched: dict[str, Any] = field(default_factory=dict[str, Any])
    """The watchers by conversation."""

    def write(self, version: str) -> None:
        (self.folder / "bundle.toml").write_text('id = "desk"\ntitle = "Desk"\nreact.max_iterations = 2\n')
        (self.folder / "instructions.md").write_text(f"The {version} version.")

    async def wait_listed(self, is_so: Callable[[dict[str, dict[str, Any]]], object]) -> dict[str, dict[str, Any]]:
        for _ in range(LIMIT_S * 10):
            if is_so(listed := await self.list()):
                return listed
            await asyncio.sleep(0.1)
        raise TimeoutError(f"After {LIMIT_S} s this is listed: {listed}")

    async def list(self) -> dict[str, dict[str, Any]]:
        answer = (await self.admin.get("/bundles/default/default")).raise_for_status()
        return {bundle["id"]: bundle for bundle in answer.json()["bundles"]}

    async def say(self, text: str, conversation: str = "new", bundle_id: str | None = None) -> tuple[str, Any]:
        """The conversation, and the turn in the end."""
        sent, watcher = await self.send(text, conversation, bundle_id)
        return sent.conversation_id, await watcher.wait_ended(sent.turn_id)

    async def send(self, text: str, conversation: str, bundle_id: str | None) -> tuple[Any, Any]:
        sent = await self.harness.clients[0].send_message(conversation, text, bundle_id=bundle_id)
        if sent.conversation_id not in self.watched:
            self.watched[sent.conversation_id] = self.harness.watch(sent.conversation_id)
        return sent, self.watched[sent.conversation_id]

    async def check_invariants(self) -> None:
        """Of all conversations: each turn has ended once, and every client has seen the same."""
        checks = (self.harness.check_invariants(conversation, seen) for conversation, seen in self.watched.items())
        await asyncio.gather(*checks)
        await self.harness.close()
        self.watched.clear()

    async def wait_answer(self, answer: str) -> None:
        """Talk until the turns of the bundle are answered so, which they are by a version at any time."""
        conversation, turn = await self.say("Hello", bundle_id="desk")
        async with asyncio.timeout(LIMIT_S):
            while turn.answer != answer:
                assert turn.answer in {f"The {version} answers." for version in VERSIONS}
                await asyncio.sleep(0.3)
                _, turn = await self.say("Hello", conversation)

    async def park(self) -> tuple[Any, Any, str]:
        """A turn of the bundle that waits for a person: its receipt, its watcher and the approval."""
        sent, watcher = await self.send("Send the mail.", "new", "desk")
        await watcher.wait_until(lambda seen: (turn := seen.turn(sent.turn_id)) and turn.status == "waiting")
        (approval,) = watcher.turn(sent.turn_id).approvals
        return sent, watcher, approval.approval_id

    async def approve(self, parked: tuple[Any, Any, str]) -> Any:
        sent, watcher, approval_id = parked
        await self.harness.clients[0].answer_approval(sent.conversation_id, approval_id, "approve")
        return await watcher.wait_ended(sent.turn_id)

    async def refuse(self, conversation: str, bundle_id: str | None = None) -> None:
        with pytest.raises(ProblemError) as refused:
            await self.harness.clients[0].send_message(conversation, "Hello", bundle_id=bundle_id)
        assert refused.value.problem.type == "urn:everturn:problem:unknown-bundle"
        assert refused.value.fields == ("body.bundle_id: must be one of default",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory, make_harness: Any) -> AsyncIterator[Desk]:
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    scripts, tools, config = (files / name for name in ("scripts.toml", "mail.py", "everturn.toml"))
    scripts.write_text(build_scripts())
    tools.write_text('def send(to: str) -> str:\n    """Sends a mail."""\n    return "It is sent."\n')
    config.write_text(f'[[tools]]\nalias = "mail"\nfile = "{tools}"\n[tools.tools.send]\nrequires_approval = true\n')
    env = {
        "EVERTURN_MODEL": f"scripted:{scripts}",
        "EVERTURN_CONFIG": str(config),
        "BUNDLES_DIR": str(files / "bundles"),
        WORKER_BOUNDS: '{"lease_s": 2, "orphans_after_s": 4}',
    }
    folder = files / "bundles" / "desk"
    folder.mkdir(parents=True)
    async with Platform(home, ingresses=1, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        harness = make_harness(platform)
        async with open_admin(platform) as admin:
            yield Desk(harness, folder, admin)
        await harness.quit()


async def test_a_bundle_is_added_changed_broken_and_removed_without_a_restart(desk: Desk) -> None:
    # Its folder is empty, which is an error that only operators see.
    listed = await desk.list()
    assert (listed["desk"]["is_ready"], listed["desk"]["error"]) == (False, "The folder desk has no bundle.toml.")
    assert (listed["default"]["is_default"], listed["default"]["error"]) == (True, None)
    await desk.refuse("new", "desk")
    assert (await desk.say("Hello"))[1].answer == "The default answers."

    desk.write("first")
    await desk.wait_listed(lambda listed: listed["desk"]["is_ready"])
    conversation, turn = await desk.say("Hello", bundle_id="desk")
    assert turn.answer == "The first answers."
    # A message without a bundle uses that of its conversation.
    assert (await desk.say("Hello again", conversation))[1].answer == "The first answers."
    _, limited = await desk.say("Work for three rounds.", bundle_id="desk")
    _, free = await desk.say("Work for three rounds.")
    assert (limited.outcome, free.outcome) == ("capped", "completed")
    parked = await desk.park()

    # Changed: turns that have begun keep their version.
    desk.write("second")
    await asyncio.gather(*(desk.wait_answer("The second answers.") for _ in range(4)))
    assert (await desk.approve(parked)).answer == "Sent by the first."
    assert (await desk.say("Hello", conversation))[1].answer == "The second answers."

    # Broken: the version before continues.
    (desk.folder / "bundle.toml").write_text('id = "desk"\n\nspeed = 1\n')
    listed = await desk.wait_listed(lambda listed: listed["desk"]["error"])
    assert listed["desk"]["error"].startswith("bundle.toml, line 3: speed: ")
    assert listed["desk"]["is_ready"]
    assert (await desk.say("Hello", bundle_id="desk"))[1].answer == "The second answers."
    parked = await desk.park()

    # Removed: no new turns, but those that have begun end.
    shutil.rmtree(desk.folder)
    await asyncio.sleep(2 * SCAN_S)
    await desk.wait_listed(lambda listed: "desk" not in listed)
    await desk.refuse("new", "desk")
    await desk.refuse(conversation)
    assert (await desk.approve(parked)).answer == "Sent by the second."
    assert (await desk.say("Hello", conversation, bundle_id="default"))[1].answer == "The default answers."
    await desk.check_invariants()
