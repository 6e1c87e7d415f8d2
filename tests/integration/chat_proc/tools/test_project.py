"""Turns whose workspace has a git history: each continues the project, reads its history, and deletes its files."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.git_sources import GitSource
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.programs import build_parts
from turn_harness.replies import answer, call

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bundles.manifest import WorkspaceSection
from chat_proc.git import GitRules
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.tools.offered import ToolPorts, offer_tools
from chat_proc.tools.workspace.history import ProjectPorts, open_projects
from everturn.core.ids import TurnId
from everturn.timeline.blocks import ToolResultBody
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.history import MemoryWorkspaceChanges
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.timelines import MemoryTimelines

APP = "def total(values):\n    return sum(values)\n"
FIXED = APP.replace("sum(values)", "sum(values or [])")


class Desk:
    """A conversation whose turns make calls."""

    def __init__(self, projects: ProjectPorts, workspace: WorkspaceSection, bench: Bench) -> None:
        self.bench = bench
        self.turn_id = TurnId("")
        """Of the last turn."""
        ports = ToolPorts(
            bench.objects,
            AttachmentReader(bench.objects),
            MemoryArtifacts(bench.platform),
            MemoryConversationReader(bench.platform),
            MemoryTimelines(bench.platform),
            projects=projects,
        )
        sandbox = SandboxUnavailable("none here")
        bench.registry = offer_tools(ports, sandbox, build_parts(), workspace=workspace, bundle_id="coder").registry

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


@asynccontextmanager
async def open_desk(workspace: WorkspaceSection) -> AsyncGenerator[Desk]:
    bench = Bench()
    changes = MemoryWorkspaceChanges(bench.platform)
    async with open_projects(changes, bench.objects, GitRules(folders=True)) as projects:
        yield Desk(projects, workspace, bench)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with open_desk(WorkspaceSection(mode="git")) as desk:
        yield desk


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


@pytest.fixture
def source(tmp_path: Path) -> GitSource:
    """A repository with a program, a link, a submodule, and files that nobody imports."""
    source = GitSource(tmp_path / "source")
    source.write("src/app.py", APP)
    source.write("src/run.sh", "#!/bin/sh\n")
    (source.folder / "src/run.sh").chmod(0o755)
    source.write("docs/old.md", "# Old\n")
    source.write("big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    source.write("other.txt", "not imported\n")
    (source.folder / "src/link").symlink_to("/etc/passwd")
    source.git("add", "--all")
    source.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},src/module")
    source.commit_index()
    return source


@pytest.fixture
async def outside(source: GitSource) -> AsyncIterator[Desk]:
    async with open_desk(WorkspaceSection(mode="git", repository=source.url)) as desk:
        yield desk


async def test_files_of_a_repository_are_imported(outside: Desk, source: GitSource) -> None:
    top, folder, imported, read = await outside.turn(
        "Begin.",
        ("git.browse", {}),
        ("git.browse", {"folder": "src"}),
        ("git.import", {"paths": ["src/", "big.bin"]}),
        ("git.diff", {}),
    )

    assert json.loads(top.text)["entries"] == ["big.bin", "docs/", "other.txt", "src/"]
    assert json.loads(folder.text)["entries"] == ["app.py", "link (link)", "module (submodule)", "run.sh"]
    assert json.loads(imported.text) == {
        "repository": source.url,
        "commit": source.git("rev-parse", "HEAD")[:12],
        "imported": 3,
        "files": ["big.bin", "src/app.py", "src/run.sh"],
        "skipped": [
            "'src/link': a link, which a workspace can't have",
            "'src/module': a submodule, which a workspace can't have",
            "big.bin: only the pointer of Git LFS; its content is not part of the repository",
        ],
    }
    assert "+def total(values):" in read.text


async def test_a_project_stays_at_the_commit_with_which_it_began(outside: Desk, source: GitSource) -> None:
    await outside.turn("Begin.", ("git.import", {"paths": ["src/app.py"]}))
    source.write("docs/old.md", "# New\n")
    source.commit()

    (imported,) = await outside.turn("Go on.", ("git.import", {"paths": ["docs/"]}))

    assert json.loads(imported.text)["files"] == ["docs/old.md"]
    (read,) = await outside.turn("Read.", ("react.read", {"paths": [f"fi:{outside.turn_id}.files/docs/old.md"]}))
    assert "# Old" in read.text


@pytest.mark.parametrize(
    ("tool", "params", "why"),
    [
        ("git.browse", {"folder": "none"}, "The repository has no folder 'none'."),
        ("git.import", {"paths": ["none", "src"]}, "Nothing was imported: The repository has no none."),
    ],
)
async def test_bad_calls_for_a_repository_are_explained(
    outside: Desk, tool: str, params: dict[str, Any], why: str
) -> None:
    await outside.turn("Try.", (tool, params))

    assert why in str(outside.bench.model.requests[-1])


async def test_a_host_that_is_not_allowed_is_named(tmp_path: Path) -> None:
    async with open_desk(WorkspaceSection(mode="git", repository="https://example.com/a.git")) as desk:
        (refused,) = await desk.turn("Try.", ("git.import", {"paths": ["src"]}))

    assert "The host of https://example.com/a.git is not allowed." in refused.text


async def test_too_many_files_are_refused(outside: Desk, source: GitSource) -> None:
    for n in range(501):
        source.write(f"many/{n}", "x")
    source.commit()

    (refused,) = await outside.turn("Try.", ("git.import", {"paths": ["many"]}))

    assert refused.text == "Nothing was imported: They are more than 500 files or 256 MiB. Import smaller folders."


async def test_a_deleted_file_that_replaced_a_folder_deletes_only_itself(desk: Desk) -> None:
    await desk.turn("Write.", write("src/a.py", "1\n"), write("src/b.py", "2\n"))
    await desk.turn("Replace and delete.", write("src", "3\n"), ("git.remove", {"paths": ["src"]}))
    second = desk.turn_id

    whole, diff = await desk.turn("List.", ("react.pull", {"paths": [f"fi:{second}.files/"]}), ("git.log", {}))

    assert json.loads(whole.text)["pulled"][0]["files"] == ["src/a.py", "src/b.py"]
    assert len(json.loads(diff.text)["commits"]) == 1
