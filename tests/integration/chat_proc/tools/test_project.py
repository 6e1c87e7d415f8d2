"""Turns whose workspace has a git history: each continues the project, reads its history, and deletes its files."""

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.git_server import GitServer
from helpers.git_sources import GitSource
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench
from turn_harness.programs import build_parts
from turn_harness.replies import answer, call

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bundles.manifest import WorkspaceSection
from chat_proc.git import GitRules, Repository, fetch_into, push
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.tools.offered import ToolPorts, offer_tools
from chat_proc.tools.workspace.history import ProjectPorts, open_projects
from chat_proc.workspace.publishing import Edit, describe_edits
from everturn.core.ids import ApprovalId, TurnId
from everturn.files.model import object_key
from everturn.git import GitUnavailable, TreeEntry, open_git_folder
from everturn.timeline.blocks import ToolResultBody
from everturn.timeline.turns import SignalKind
from everturn.turns.inbox import IncomingSignal
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
        self.after_death: Callable[[], object] = lambda: None
        """What happens before the call is made again."""
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

    async def ask(self, text: str, *calls: tuple[str, dict[str, Any]]) -> str:
        """A turn that makes these calls, and waits for a person to approve the last one; what the person reads."""
        self.bench.model.add(*(call(tool, params) for tool, params in calls), answer("Done."))
        await self.bench.say(text)
        self.turn_id = self.bench.turn_rows[-1].id
        await self.bench.work()
        return self.bench.state().turns[-1].approvals[-1].details or ""

    async def answer(self, kind: SignalKind = SignalKind.APPROVE, failpoint: str = "") -> ToolResultBody:
        """The result of the last call, after a person has approved it, and its worker has died at a failpoint."""
        asked = self.bench.state().turns[-1].approvals[-1]
        signal = IncomingSignal(self.bench.ids.signal(), kind, "", approval_id=ApprovalId(asked.approval_id))
        await self.bench.inbox.accept_signal(ANN, self.bench.conversation_id, signal, None)
        if failpoint:
            await self.bench.hire(failpoint=f"{failpoint}:1:raise").work()
            self.bench.expire_lease()
        self.after_death()
        await self.bench.work()
        if not self.bench.turn_rows[-1].status.is_open:
            await check_conversation(self.bench)
        return [block.body for block in self.bench.blocks if isinstance(block.body, ToolResultBody)][-1]


def publish(branch: str = "agents/fix", message: str = "Fix the totals") -> tuple[str, dict[str, Any]]:
    return "git.publish", {"branch": branch, "message": message}


def write(path: str, text: str) -> tuple[str, dict[str, Any]]:
    return "react.write", {"path": f"files/{path}", "channel": "internal", "content": text}


@asynccontextmanager
async def open_desk(workspace: WorkspaceSection, rules: GitRules | None = None) -> AsyncGenerator[Desk]:
    bench = Bench()
    changes = MemoryWorkspaceChanges(bench.platform)
    async with open_projects(changes, bench.objects, rules or GitRules(folders=True)) as projects:
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
    async with open_desk(WorkspaceSection(mode="git", repository=source.url, publish="agents/*")) as desk:
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


async def test_a_person_sees_what_a_push_changes_and_only_that_is_pushed(outside: Desk, source: GitSource) -> None:
    base = source.git("rev-parse", "HEAD")
    details = await outside.ask(
        "Fix it.",
        ("git.import", {"paths": ["src/", "docs"]}),
        write("src/app.py", FIXED),
        write("src/run.sh", "#!/bin/sh\nexit 1\n"),
        write(".github/workflows/ci.yml", "on: push\n"),
        write("other.txt", "blind\n"),
        ("git.remove", {"paths": ["docs/old.md"]}),
        publish(),
    )

    assert source.git("branch", "--list", "agents/*") == ""
    lines = details.splitlines()
    assert lines[0] == f"Push 1 commit to the branch agents/fix of {source.url}."
    assert lines[1].startswith(f"The branch is new. It begins at the commit with which the project began, {base[:12]}")
    assert "has the author ann and the committer Everturn." in lines[2]
    assert lines[3:] == [
        "5 files: 1 added, 3 changed, 1 deleted.",
        "3 of them need attention, and are listed first:",
        "added .github/workflows/ci.yml (+1 -0 lines, 9 bytes)  ATTENTION: CI runs it",
        "changed other.txt (+1 -1 lines, 6 bytes)  ATTENTION: replaces a file that the agent has not imported",
        "changed src/run.sh (+1 -0 lines, 17 bytes)  ATTENTION: executable",
        "deleted docs/old.md (+0 -1 lines)",
        "changed src/app.py (+1 -1 lines, 48 bytes)",
    ]

    result = await outside.answer()

    commit = source.git("rev-parse", "agents/fix")
    assert json.loads(result.text)["published"] == {
        "repository": source.url,
        "branch": "agents/fix",
        "commit": commit,
    }
    assert source.git("rev-parse", "agents/fix^") == base and commit[:12] in lines[2]
    assert source.git("diff", "--name-status", "main", "agents/fix").split() == [
        *("A", ".github/workflows/ci.yml", "D", "docs/old.md", "M", "other.txt"),
        *("M", "src/app.py", "M", "src/run.sh"),
    ]
    assert source.git("ls-tree", "agents/fix", "src/run.sh").startswith("100755")
    shown = source.git("log", "-1", "--format=%an|%cn|%(trailers:key=Everturn-Call,valueonly)|%s", "agents/fix")
    assert shown.startswith(f"ann|Everturn|{outside.turn_id}/call_") and shown.endswith("|Fix the totals")


async def test_what_was_not_imported_is_never_deleted(outside: Desk, source: GitSource) -> None:
    source.write("src/empty.py", "")
    source.commit()
    details = await outside.ask(
        "Clean up.",
        ("git.import", {"paths": ["src/app.py", "docs"]}),
        write("src/empty.py", ""),
        write("src/own.py", "1\n"),
        ("git.remove", {"paths": ["src/app.py", "src/empty.py", "src/own.py", "docs/old.md"]}),
        write("docs", "Now a file.\n"),
        publish(),
    )
    await outside.answer()

    assert "3 files: 1 added, 2 deleted." in details
    assert source.git("diff", "--name-status", "main", "agents/fix").split() == [
        *("A", "docs", "D", "docs/old.md", "D", "src/app.py"),
    ]

    await outside.turn("Replace.", write("src", "A file.\n"), publish("agents/other"))
    assert "src is a folder of the repository with files that this project does not have" in str(
        outside.bench.model.requests[-1]
    )


async def test_the_project_is_published_again_over_what_it_has_published(outside: Desk, source: GitSource) -> None:
    await outside.ask(
        "Begin.",
        ("git.import", {"paths": ["src/app.py"]}),
        write("src/app.py", FIXED),
        write("new.py", "1\n"),
        publish(),
    )
    await outside.answer()
    first = source.git("rev-parse", "agents/fix")
    (nothing,) = await outside.turn("Again.", publish())
    assert nothing.text == (
        "Nothing was published: There is nothing to publish: the branch has all that this project has changed."
    )
    source.git("switch", "--quiet", "agents/fix")
    source.write("theirs.txt", "by a person\n")
    source.git("add", "theirs.txt")
    theirs = source.commit_index()
    source.git("switch", "--quiet", "main")

    details = await outside.ask(
        "Take it back.", write("src/app.py", APP), ("git.remove", {"paths": ["new.py"]}), publish(message="Undo")
    )
    await outside.answer()

    assert f"The push continues its newest commit, {theirs[:12]} \u201cchange\u201d by NAME@example" in details
    assert "2 files: 1 changed, 1 deleted." in details
    assert source.git("rev-parse", "agents/fix^", "agents/fix^^").split() == [theirs, first]
    assert source.git("diff", "--name-only", "main", "agents/fix").split() == ["theirs.txt"]


async def test_files_that_others_changed_on_the_branch_are_not_overwritten(outside: Desk, source: GitSource) -> None:
    source.git("switch", "--quiet", "--create", "agents/fix")
    source.write("src/app.py", "theirs\n")
    source.commit()
    source.git("switch", "--quiet", "main")

    await outside.turn("Fix.", ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish())

    assert "The branch agents/fix has versions by others of src/app.py. Choose another branch." in str(
        outside.bench.model.requests[-1]
    )
    assert not outside.bench.state().turns[-1].approvals


async def test_a_branch_that_moved_after_the_approval_is_not_overwritten(outside: Desk, source: GitSource) -> None:
    calls = ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish()
    await outside.ask("Fix.", *calls)
    source.git("branch", "agents/fix")

    moved = await outside.answer()

    base = source.git("rev-parse", "main")
    assert moved.status == "error" and f"it was absent and is at {base[:12]}" in moved.text
    assert source.git("rev-parse", "agents/fix") == base


async def test_two_pushes_that_were_approved_side_by_side_never_overwrite_each_other(
    outside: Desk, source: GitSource
) -> None:
    calls = ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish()
    await outside.ask("Fix.", *calls)
    async with open_desk(WorkspaceSection(mode="git", repository=source.url, publish="agents/*")) as other:
        await other.ask("Fix it, too.", *calls[:2], publish(message="Fix it, too"))
        assert (await other.answer()).status == "ok"
    theirs = source.git("rev-parse", "agents/fix")

    moved = await outside.answer()

    assert f"it was absent and is at {theirs[:12]}. Nothing of it was changed. Publish again" in moved.text
    assert source.git("rev-parse", "agents/fix") == theirs


async def test_a_branch_that_moves_during_a_push_is_not_overwritten(source: GitSource) -> None:
    rules, repository = GitRules(folders=True), Repository(source.url)
    first = source.git("rev-parse", "main")
    source.write("docs/old.md", "# New\n")
    second = source.commit()
    source.git("branch", "agents/fix", second)
    async with open_git_folder(rules.limits) as folder:
        await folder.init()
        await fetch_into(folder, replace(repository, ref=first), first, rules)
        for expected in (first, ""):
            with pytest.raises(GitUnavailable, match="Git push failed: stale info"):
                await push(folder, repository, first, "agents/fix", expected, rules)

    assert source.git("rev-parse", "agents/fix") == second


@pytest.mark.parametrize("died", ["turn.approved", "turn.in_tool", "turn.before_c2"])
@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_push_is_made_once_if_its_worker_dies(
    outside: Desk, source: GitSource, died: str, *, goes_on: bool
) -> None:
    """Also if somebody has continued the branch before the call is made again."""

    def continue_branch() -> None:
        if goes_on and source.git("branch", "--list", "agents/*"):
            tree = source.git("rev-parse", "agents/fix^{tree}")
            commit = source.git("commit-tree", tree, "-p", "agents/fix", "-m", "theirs")
            source.git("update-ref", "refs/heads/agents/fix", commit)

    outside.after_death = continue_branch
    await outside.ask("Fix.", ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish())

    result = await outside.answer(failpoint=died)

    pushed = source.git("log", "--format=%H", "--grep=Fix the totals", "agents/fix").split()
    assert result.status == "ok" and [json.loads(result.text)["published"]["commit"]] == pushed
    assert source.git("rev-list", "--count", "main..agents/fix") == (
        "2" if goes_on and died == "turn.before_c2" else "1"
    )


async def test_what_was_approved_is_pushed_or_nothing(outside: Desk, source: GitSource) -> None:
    await outside.ask("Fix.", ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish())
    key = object_key(outside.bench.conversation_id, hashlib.sha256(FIXED.encode()).hexdigest())
    outside.after_death = lambda: outside.bench.platform.revoked.add(key)

    changed = await outside.answer()

    assert changed.status == "error" and "Publishing failed: " in changed.text
    assert source.git("branch", "--list", "agents/*") == ""


async def test_a_private_repository_gets_its_token_for_a_push(
    git_server: GitServer, source: GitSource, tmp_path: Path
) -> None:
    bare = tmp_path / "shop.git"
    source.git("clone", "--quiet", "--bare", str(source.folder), str(bare))
    git_server.password = "tok-hunter2-0123456789"
    (tmp_path / "secrets/bundles/coder").mkdir(parents=True)
    (tmp_path / "secrets/bundles/coder/git").write_text(git_server.password)
    rules = GitRules(
        frozenset({git_server.host}),
        environment={"GIT_SSL_CAINFO": str(git_server.certificate)},
        secrets_dir=tmp_path / "secrets",
    )
    section = WorkspaceSection(mode="git", repository=git_server.url("shop.git"), token="b:git", publish="agents/*")
    async with open_desk(section, rules) as desk:
        calls = ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish()
        details = await desk.ask("Fix.", *calls)
        result = await desk.answer()

        assert f"agents/fix of {git_server.url('shop.git')}." in details
        commit = json.loads(result.text)["published"]["commit"]
        assert source.git("--git-dir", str(bare), "rev-parse", "agents/fix") == commit
        assert git_server.password not in str(desk.bench.blocks)


def test_a_person_reads_about_a_hundred_files_and_all_that_need_attention_first() -> None:
    before = TreeEntry("file", "", 1, "0" * 40)
    edits = [Edit(f"src/{n}\u202e.py", None, before) for n in range(150)]
    edits += [Edit(f".github/workflows/{n}.yml", None, before) for n in range(3)]

    lines = [*describe_edits(edits, {"src/0\u202e.py": ("0", "7")})]

    assert lines[0] == "153 files: 153 deleted." and "ATTENTION" in lines[4] and "ATTENTION" not in lines[5]
    assert lines[5] == "deleted 'src/0\\u202e.py' (+0 -7 lines)"
    assert len(lines) == 103 and lines[-1] == "... and 53 more files."
    long = [Edit(f".github/workflows/{'x' * 300}{n}.yml", None, before) for n in range(90)]
    cut = [*describe_edits(long, {})]
    assert (
        len("\n".join(cut)) < 10_000
        and cut[-1] == f"... and {92 - len(cut) + 1} more files. {93 - len(cut)} of them need attention."
    )


async def test_a_denied_push_changes_nothing(outside: Desk, source: GitSource) -> None:
    await outside.ask("Fix.", ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish())

    await outside.answer(SignalKind.DENY)

    assert source.git("branch", "--list", "agents/*") == ""


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        (publish("main"), "'main' can't be pushed to: only agents/* can"),
        (publish("agents/a/b"), "'agents/a/b' can't be pushed to"),
        (publish("agents/.a"), "must be the name of a branch"),
        (publish(message="Fix\n\nEverturn-Call: turn_1/call_1"), "can't have lines such as Everturn-Call:"),
        (publish(message="Fix\u202e"), "can only have printable characters"),
        (publish(), "This project has no files of the repository yet."),
    ],
)
async def test_bad_pushes_are_explained(outside: Desk, tool: tuple[str, dict[str, Any]], why: str) -> None:
    await outside.turn("Try.", write("a.py", "1\n"), tool)

    assert why in str(outside.bench.model.requests[-1])
    assert not outside.bench.state().turns[-1].approvals


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("src/link", "src/link is a link in the repository. Write to another path."),
        ("src/link/x", "src/link is a link in the repository, so src/link/x can't be in it."),
        ("src/module/.gitmodules", "src/module is a submodule in the repository"),
        ("other.txt/x", "other.txt is a file in the repository"),
    ],
)
async def test_a_file_does_not_take_the_place_of_what_a_project_cant_have(
    outside: Desk, source: GitSource, path: str, why: str
) -> None:
    await outside.turn("Try.", ("git.import", {"paths": ["src/app.py"]}), write(path, "1\n"), publish())

    assert why in str(outside.bench.model.requests[-1])
    assert source.git("branch", "--list", "agents/*") == ""


async def test_changes_that_were_published_and_taken_back_in_one_turn_are_known(
    outside: Desk, source: GitSource
) -> None:
    """What a turn has overwritten is no change of it any more, but the branch still has it."""
    await outside.ask(
        "Fix.",
        ("git.import", {"paths": ["src/app.py"]}),
        write("src/app.py", FIXED),
        publish(),
        write("src/app.py", "third\n"),
        publish(message="Third"),
    )
    await outside.answer()
    assert outside.bench.state().turns[-1].approvals[-1].state == "pending"

    third = await outside.answer()

    assert third.status == "ok" and source.git("show", "agents/fix:src/app.py") == "third"


async def test_a_push_that_the_server_refuses_is_explained(outside: Desk, source: GitSource) -> None:
    hook = source.folder / ".git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'The branch is protected.\033[31m' >&2\nexit 1\n")
    hook.chmod(0o755)
    await outside.ask("Fix.", ("git.import", {"paths": ["src/app.py"]}), write("src/app.py", FIXED), publish())

    refused = await outside.answer()

    assert refused.status == "error" and refused.untrusted
    assert (
        "Publishing failed: Git push failed: The branch is protected. [31m | pre-receive hook declined" in refused.text
    )


async def test_a_workspace_without_branches_to_publish_has_no_tool_for_it(source: GitSource) -> None:
    async with open_desk(WorkspaceSection(mode="git", repository=source.url)) as desk:
        assert desk.bench.registry.try_spec("git.publish") is None
