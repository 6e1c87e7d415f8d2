"""Turns whose workspace has a git history: each continues the project, reads its history, and deletes its files."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.programs import build_parts
from turn_harness.replies import answer, call

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.tools.offered import ToolPorts, offer_tools
from chat_proc.tools.workspace.history import ProjectPorts
from everturn.core.ids import TurnId
from everturn.history.repository import GitHistories, open_histories
from everturn.timeline.blocks import ToolResultBody
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.history import MemoryWorkspaceChanges
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.timelines import MemoryTimelines

APP = "def total(values):\n    return sum(values)\n"
FIXED = APP.replace("sum(values)", "sum(values or [])")


class Desk:
    """A conversation whose turns make calls."""

    def __init__(self, histories: GitHistories, bench: Bench) -> None:
        self.bench = bench
        self.turn_id = TurnId("")
        """Of the last turn."""
        changes = MemoryWorkspaceChanges(bench.platform)
        ports = ToolPorts(
            bench.objects,
            AttachmentReader(bench.objects),
            MemoryArtifacts(bench.platform),
            MemoryConversationReader(bench.platform),
            MemoryTimelines(bench.platform),
            projects=ProjectPorts(changes, histories),
        )
        sandbox = SandboxUnavailable("none here")
        bench.registry = offer_tools(ports, sandbox, build_parts(), workspace="git").registry

    async def turn(self, text: str, *calls: tuple[str, dict[str, Any]]) -> list[ToolResultBody]:
        """A turn that makes these calls, and their results."""
        self.bench.model.add(*(call(tool, params) for tool, params in calls), answer("Done."))
        await self.bench.say(text)
        self.turn_id = self.bench.turn_rows[-1].id
        before = len(self.bench.blocks)
        await self.bench.work()
        await check_conversation(self.bench)
        return [block.body for block in self.bench.blocks[before:] if isinstance(block.body, ToolResultBody)]


def write(path: str, text: str) -> tuple[str, dict[str, Any]]:
    return "react.write", {"path": f"files/{path}", "channel": "internal", "content": text}


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    bench = Bench()
    async with open_histories(MemoryWorkspaceChanges(bench.platform), bench.objects) as histories:
        yield Desk(histories, bench)


async def test_a_turn_continues_the_whole_project(desk: Desk) -> None:
    await desk.turn("Write an app.", write("src/app.py", APP), write("notes.md", "# Notes\n"))
    first = desk.turn_id
    await desk.turn("Fix it.", write("src/app.py", FIXED))
    second = desk.turn_id

    old, whole = await desk.turn(
        "Go on.",
        ("react.read", {"paths": [f"fi:{first}.files/src/app.py"]}),
        ("react.checkout", {"paths": [f"fi:{second}.files/"]}),
    )

    assert "sum(values)" in old.text and "or []" not in old.text
    assert json.loads(whole.text)["files"] == ["notes.md", "src/app.py"]


async def test_the_history_can_be_read(desk: Desk) -> None:
    await desk.turn("Write an app.\nPlease.", write("src/app.py", APP), write("notes.md", "# Notes\n"))
    first = desk.turn_id
    await desk.turn("Fix it.", write("src/app.py", FIXED))
    second = desk.turn_id

    log, of_file, diff, blame = await desk.turn(
        "What happened?",
        ("git.log", {}),
        ("git.log", {"path": "files/notes.md", "limit": 1}),
        ("git.diff", {"from": first, "to": second, "paths": ["src/"]}),
        ("git.blame", {"path": "src/app.py"}),
    )

    commits = json.loads(log.text)["commits"]
    assert [(each["turn"], each["subject"], each["files"]) for each in commits] == [
        (second, "Fix it.", ["src/app.py"]),
        (first, "Write an app.", ["notes.md", "src/app.py"]),
    ]
    assert [each["turn"] for each in json.loads(of_file.text)["commits"]] == [first]
    assert "-    return sum(values)\n+    return sum(values or [])" in diff.text
    assert blame.text.splitlines() == [
        f"{first} 1: def total(values):",
        f"{second} 2:     return sum(values or [])",
    ]


async def test_a_turn_sees_what_it_has_changed_so_far(desk: Desk) -> None:
    (nothing,) = await desk.turn("Look.", ("git.diff", {}))
    (empty,) = await desk.turn("Look.", ("git.log", {}))
    await desk.turn("Write an app.", write("src/app.py", APP))

    before, _, after = await desk.turn(
        "Fix it.", ("git.diff", {}), write("src/app.py", FIXED), ("git.diff", {"paths": ["src/app.py"]})
    )

    assert nothing.text == "There are no changes: no turn has changed files yet."
    assert empty.text == "No turn has changed files yet."
    assert before.text == "There are no changes."
    assert after.text.count("\n+") == 2 and "+    return sum(values or [])" in after.text


async def test_what_a_turn_deletes_stays_in_the_history(desk: Desk) -> None:
    await desk.turn("Write.", write("a.py", "1\n"), write("b.py", "2\n"))
    first = desk.turn_id
    missing, deleted, now = await desk.turn(
        "Delete.", ("git.remove", {"paths": ["a.pi"]}), ("git.remove", {"paths": ["files/a.py"]}), ("git.diff", {})
    )
    second = desk.turn_id

    gone, listed, restored, log = await desk.turn(
        "Restore.",
        ("react.read", {"paths": [f"fi:{second}.files/a.py"]}),
        ("react.pull", {"paths": [f"fi:{second}.files/"]}),
        ("react.checkout", {"mode": "overlay", "paths": [f"fi:{first}.files/a.py"]}),
        ("git.log", {"path": "a.py"}),
    )
    third = desk.turn_id

    assert missing.text == "Nothing was deleted: the project has no a.pi. Did you mean a.py?"
    assert deleted.status == "ok" and "deleted file mode" in now.text
    assert "missing (there is no such file; an earlier turn has" in gone.text
    assert json.loads(listed.text)["pulled"][0]["files"] == ["b.py"]
    assert json.loads(restored.text)["files"] == ["a.py"]
    assert json.loads(log.text)["commits"][0]["files"] == ["a.py (deleted)"]
    (whole,) = await desk.turn("List.", ("react.pull", {"paths": [f"fi:{third}.files/"]}))
    assert json.loads(whole.text)["pulled"][0]["files"] == ["a.py", "b.py"]


async def test_a_replacing_checkout_deletes_nothing_from_the_project(desk: Desk) -> None:
    await desk.turn("Write.", write("a.py", "1\n"), write("b.py", "2\n"))
    first = desk.turn_id

    await desk.turn(
        "Look around.",
        ("react.checkout", {"paths": [f"fi:{first}.files/"]}),
        write("b.py", "3\n"),
        ("react.checkout", {"paths": [f"fi:{first}.files/a.py"]}),
    )

    (whole,) = await desk.turn("Diff.", ("git.diff", {"from": first, "to": "HEAD"}))
    assert whole.text == "There are no changes."


@pytest.mark.parametrize(
    ("tool", "params", "why"),
    [
        ("git.diff", {"from": "HEAD~1"}, "'HEAD~1' names no commit of this conversation."),
        ("git.blame", {"path": "none.py"}, "There is no file 'none.py' at 'HEAD'."),
        ("git.blame", {"path": "a.py", "line_start": 9}, "a.py has 1 lines."),
        ("git.log", {"path": "../a"}, "must be relative"),
        ("git.remove", {"paths": [""]}, "must be relative"),
    ],
)
async def test_bad_calls_are_explained(desk: Desk, tool: str, params: dict[str, Any], why: str) -> None:
    await desk.turn("Write.", write("a.py", "1\n"))

    await desk.turn("Try.", (tool, params))

    assert why in str(desk.bench.model.requests[-1])
