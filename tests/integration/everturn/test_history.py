"""The git history of a conversation: the same commits wherever it is built, whatever its files are called."""

import asyncio
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from everturn.core.errors import Invalid, NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.kept_folders import KeptFolders
from everturn.files.model import Artifact, ArtifactKind
from everturn.git import RepositoryRefused
from everturn.history import repository
from everturn.history.model import FileChange, TurnChanges
from everturn.history.project import fold_project
from everturn.history.repository import GitHistories, GitHistory, TooManyBuilds, TurnCommit, open_histories
from everturn_testing.files.objects import MemoryObjects

ANN = Principal("acme", "support", "ann")
FIRST, SECOND = ConversationId("conv_1"), ConversationId("conv_2")
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Site:
    """Conversations whose turns change files."""

    def __init__(self, folder: Path, max_kept: int = 8) -> None:
        self.objects = MemoryObjects()
        self.turns: dict[ConversationId, list[TurnChanges]] = {}
        self.histories = self.open(folder, max_kept)
        self.folder = folder

    def open(self, folder: Path, max_kept: int = 8) -> GitHistories:
        """Those of another process."""
        folder.mkdir(exist_ok=True)
        kept = KeptFolders[ConversationId, Sequence[TurnCommit]](folder, max_kept=max_kept, max_bytes=2**30)
        return GitHistories(self, self.objects, kept)

    async def load(self, principal: Principal, conversation_id: ConversationId) -> tuple[TurnChanges, ...]:
        return tuple(self.turns.get(conversation_id, ()))

    def change(self, files: dict[str, bytes | None], conversation_id: ConversationId = FIRST) -> TurnId:
        """One more turn, which writes these files, or deletes those that are None."""
        turns = self.turns.setdefault(conversation_id, [])
        turn_id = TurnId(f"turn_{len(turns) + 1:04}")
        changes = tuple(
            FileChange(path, None if data is None else self.store(turn_id, path, data)) for path, data in files.items()
        )
        turns.append(TurnChanges(turn_id, BEGAN + timedelta(minutes=len(turns)), f"Turn {len(turns) + 1}", changes))
        return turn_id

    def store(self, turn_id: TurnId, path: str, data: bytes) -> Artifact:
        digest = hashlib.sha256(data).hexdigest()
        self.objects.stored[f"conv_1/{digest}"] = data
        return Artifact.model_construct(
            turn_id=turn_id,
            path=f"{turn_id}/files/{path}",
            kind=ArtifactKind.FILE,
            size=len(data),
            sha256=digest,
            object_key=f"conv_1/{digest}",
        )

    async def list_commits(self, histories: GitHistories | None = None) -> list[str]:
        async with (histories or self.histories).open(ANN, FIRST) as history:
            return [each.commit for each in history.commits]

    async def list_files(self, name: str = "HEAD") -> dict[str, bytes]:
        async with self.histories.open(ANN, FIRST) as history:
            return await read_files(history, name)


async def read_files(history: GitHistory, name: str = "HEAD") -> dict[str, bytes]:
    commit = history.open_commit(history.find(name))
    try:
        return {entry.path: await commit.read(entry) for entry in await commit.list_entries()}
    finally:
        await commit.close()


def clone(source: Path, target: Path) -> None:
    """Clone as a person would, and check all objects strictly."""
    subprocess.run(["git", "clone", "--quiet", source, target], check=True)
    subprocess.run(["git", "-C", target, "fsck", "--strict"], check=True)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "histories")


async def test_every_turn_is_a_commit_over_the_turn_before(site: Site) -> None:
    first = site.change({"a.txt": b"one\n", "src/b.py": b"pass\n"})
    second = site.change({"a.txt": b"two\n"})
    third = site.change({"src/b.py": None})

    assert await site.list_files(first) == {"a.txt": b"one\n", "src/b.py": b"pass\n"}
    assert await site.list_files(second) == {"a.txt": b"two\n", "src/b.py": b"pass\n"}
    assert await site.list_files(third) == await site.list_files() == {"a.txt": b"two\n"}


async def test_the_same_turns_give_the_same_commits(site: Site, tmp_path: Path) -> None:
    site.change({"a": b"1", "b": b"\x00\xff" * 400_000})
    at_first = await site.list_commits()
    site.change({"a": None, "c/d": b""})
    grown = await site.list_commits()

    assert grown == await site.list_commits(site.open(tmp_path / "other"))
    assert grown[:1] == at_first
    assert len(set(grown)) == 2


async def test_a_history_grows_while_it_is_read(site: Site) -> None:
    site.change({"a": b"1"})
    async with site.histories.open(ANN, FIRST) as before:
        site.change({"a": b"2"})
        await site.list_commits()

        assert await read_files(before) == {"a": b"1"}


async def test_a_file_that_is_harmful_disappears_from_all_commits(site: Site) -> None:
    site.change({"a": b"1", "bad": b"virus"})
    site.change({"b": b"2"})
    async with site.histories.open(ANN, FIRST) as before:
        first, *rest = site.turns[FIRST]
        site.turns[FIRST] = [replace(first, changes=first.changes[:1]), *rest]

        assert await site.list_files() == {"a": b"1", "b": b"2"}
        assert before.folder.path.exists()

    assert not before.folder.path.exists()


async def test_a_file_takes_the_place_of_a_folder_and_back(site: Site) -> None:
    site.change({"a/b": b"1", "a/c": b"2"})
    site.change({"a": b"3"})
    site.change({"a/d": b"4"})

    assert await site.list_files("turn_0002") == {"a": b"3"}
    assert await site.list_files() == {"a/d": b"4"}


NAMES = [
    'say "hi"',
    "new\u00e9.txt",
    " lead",
    "tab\\here",
    "-rf",
    ":(glob)*",
    "a b/c d",
    "*",
    ".gitattributes",
    ".gitmodules",
]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_is_kept(site: Site, name: str) -> None:
    site.change({name: b"*.txt diff=evil\n"})
    site.change({name: b"* export-subst filter=evil\n"})

    async with site.histories.open(ANN, FIRST) as history:
        assert await read_files(history) == {name: b"* export-subst filter=evil\n"}
        changed = await history.diff(*history.commits, [name])
        assert "-*.txt diff=evil\n+* export-subst filter=evil\n" in changed
        (line,) = await history.blame(history.find("HEAD"), name, 1, 1)
        assert line.turn_id == "turn_0002"


async def test_names_that_are_folders_of_git_are_left_out(site: Site, tmp_path: Path) -> None:
    site.change({".git/config": b"[core]", "a/.GIT/hooks/post-checkout": b"#!/bin/sh", "GIT~1/x": b"", "kept": b"1"})

    assert await site.list_files() == {"kept": b"1"}
    target = tmp_path / "clone"
    async with site.histories.open(ANN, FIRST) as history:
        await asyncio.to_thread(clone, history.folder.path, target)
    assert [path.name for path in target.iterdir() if path.name != ".git"] == ["kept"]


async def test_lines_are_attributed_to_their_turns(site: Site) -> None:
    site.change({"a": b"one\ntwo\nthree\n", "empty": b"", "binary": b"\0"})
    site.change({"a": b"one\n2\nthree\nfour"})

    async with site.histories.open(ANN, FIRST) as history:
        head = history.find("HEAD")
        blamed = await history.blame(head, "a", 2, 10_000)
        with pytest.raises(NotFound):
            await history.blame(head, "gone", 1, 1)
        with pytest.raises(Invalid, match="has 4 lines"):
            await history.blame(head, "a", 5, 1)
        with pytest.raises(Invalid, match="has 0 lines"):
            await history.blame(head, "empty", 1, 1)
        with pytest.raises(Invalid, match="not a text"):
            await history.blame(head, "binary", 1, 1)

    assert [(line.line, line.turn_id, line.text) for line in blamed] == [
        (2, "turn_0002", "2"),
        (3, "turn_0001", "three"),
        (4, "turn_0002", "four"),
    ]


async def test_commits_are_found_by_turn_by_their_beginning_and_by_head(site: Site) -> None:
    site.change({"a": b"1"})
    site.change({"a": b"2"})

    async with site.histories.open(ANN, FIRST) as history:
        first, second = history.commits
        assert history.find("HEAD") == history.find("turn_0009") == history.find(second.commit[:7]) == second
        assert (history.find_before(second), history.find_before(first)) == (first, None)
        for name in ("turn_0000", first.commit[:6], "", "f" * 40, "HEAD~1"):
            with pytest.raises(NotFound):
                history.find(name)


async def test_turns_are_in_the_order_of_the_conversation_not_of_their_ids(site: Site) -> None:
    """Servers whose clocks differ can give a later turn an earlier id."""
    site.change({"a": b"1"})
    site.change({"a": b"2"})
    first, second = site.turns[FIRST]
    site.turns[FIRST] = [replace(first, turn_id=TurnId("turn_9")), replace(second, turn_id=TurnId("turn_5"))]

    assert await site.list_files("turn_9") == {"a": b"1"}
    assert await site.list_files("turn_5") == await site.list_files() == {"a": b"2"}
    assert fold_project(site.turns[FIRST], "turn_9")["a"].sha256 == hashlib.sha256(b"1").hexdigest()


async def test_a_history_without_turns_is_empty(site: Site) -> None:
    assert await site.list_commits() == []


async def test_a_store_that_is_down_spoils_nothing(site: Site) -> None:
    site.change({"a": b"1"})
    await site.list_commits()
    site.change({"b": b"2"})
    site.objects.down = True
    with pytest.raises(Unavailable):
        await site.list_commits()

    site.objects.down = False

    assert await site.list_files() == {"a": b"1", "b": b"2"}
    assert len(list(site.folder.iterdir())) == 1


async def test_a_repository_that_is_too_large_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "LIMITS", replace(repository.LIMITS, disk_bytes=100_000))
    site.change({"a": hashlib.shake_256(b"").digest(400_000)})

    with pytest.raises(RepositoryRefused, match="needs more than"):
        await site.list_commits()


async def test_a_long_diff_says_what_to_do(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MAX_DIFF_BYTES", 1_000)
    site.change({"a": b"1\n" * 1_000, "b": b"1\n"})

    async with site.histories.open(ANN, FIRST) as history:
        with pytest.raises(Invalid, match="Name some of the files"):
            await history.diff(None, history.find("HEAD"))
        assert "+1" in await history.diff(None, history.find("HEAD"), ["b"])


async def test_only_the_last_used_are_kept(tmp_path: Path) -> None:
    site = Site(tmp_path / "histories", max_kept=1)
    site.change({"a": b"1"})
    site.change({"a": b"1"}, SECOND)

    async with site.histories.open(ANN, FIRST) as used, site.histories.open(ANN, SECOND):
        assert used.folder.path.exists()
    async with site.histories.open(ANN, SECOND):
        assert len(list(site.folder.iterdir())) == 1


async def test_many_readers_build_it_once(site: Site) -> None:
    for n in range(5):
        site.change({f"f{n}": b"x" * n})

    commits: Sequence[list[str]] = await asyncio.gather(*(site.list_commits() for _ in range(8)))

    assert {tuple(each) for each in commits} == {tuple(commits[0])}
    assert len(list(site.folder.iterdir())) == 1


async def test_turns_that_are_gone_are_gone_from_the_history(site: Site) -> None:
    site.change({"a": b"1"})
    site.change({"bad": b"virus"})
    assert len(await site.list_commits()) == 2

    # Its only file was found to be harmful.
    site.turns[FIRST].pop()
    assert await site.list_files() == {"a": b"1"}
    # Those of somebody else, or of an erased conversation.
    site.turns[FIRST] = []
    assert await site.list_commits() == []


async def test_what_is_kept_of_an_erased_conversation_is_removed(site: Site) -> None:
    site.change({"a": b"1"})
    async with site.histories.open(ANN, FIRST) as reader:
        await site.histories.remove(FIRST)
        assert await read_files(reader) == {"a": b"1"}

    assert list(site.folder.iterdir()) == []
    await site.histories.remove(FIRST)


async def test_an_erasure_during_a_build_removes_it_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.change({"a": b"1"})
    load = site.objects.load_stream

    async def erase(key: str) -> AsyncGenerator[bytes]:
        await site.histories.remove(FIRST)
        async for chunk in load(key):
            yield chunk

    monkeypatch.setattr(site.objects, "load_stream", erase)

    assert len(await site.list_commits()) == 1
    assert list(site.folder.iterdir()) == []


async def test_a_person_has_one_history_built_at_once_and_few_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MAX_WAITING", 2)
    monkeypatch.setattr(repository, "BUILDS", 2)
    load, going, most, release = site.objects.load_stream, 0, 0, asyncio.Event()

    async def hold(key: str) -> AsyncGenerator[bytes]:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await release.wait()
        going -= 1
        async for chunk in load(key):
            yield chunk

    monkeypatch.setattr(site.objects, "load_stream", hold)
    names = [ConversationId(f"conv_{n}") for n in range(5)]
    for name in names:
        site.change({"a": b"1"}, name)

    async def read(name: ConversationId, person: Principal) -> int:
        async with site.histories.open(person, name) as history:
            return len(history.commits)

    anns = [asyncio.create_task(read(name, ANN)) for name in names[:2]]
    bob = asyncio.create_task(read(names[2], replace(ANN, user_id="bob")))
    eve = asyncio.create_task(read(names[3], replace(ANN, user_id="eve")))
    async with asyncio.timeout(30):
        while going < 2:  # noqa: ASYNC110 - for what sends no notification
            await asyncio.sleep(0.01)
    with pytest.raises(TooManyBuilds):
        await read(names[4], replace(ANN, user_id="mallory"))
    release.set()

    assert await asyncio.gather(*anns, bob, eve) == [1, 1, 1, 1] and most == 2


async def test_what_nobody_used_for_a_while_is_removed(site: Site) -> None:
    kept = KeptFolders[ConversationId, Sequence[TurnCommit]](site.folder, max_kept=8, max_bytes=2**30, kept_s=0.05)
    histories = GitHistories(site, site.objects, kept)
    site.change({"a": b"1"})
    async with asyncio.timeout(30), kept.removing_unused():
        async with histories.open(ANN, FIRST) as reader:
            await asyncio.sleep(0.2)
            assert reader.folder.path.exists()
        while list(site.folder.iterdir()):  # noqa: ASYNC110 - for what sends no notification
            await asyncio.sleep(0.01)

    assert len(await site.list_commits(histories)) == 1


HOLD = """
import asyncio, sys
from everturn.history.repository import open_histories

async def main():
    async with open_histories(None, None):
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


async def test_a_process_removes_its_folder_and_those_of_dead_ones(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "tmp"
    there.mkdir()
    (there / "everturn-histories-link").symlink_to(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(there))

    def list_folders() -> list[str]:
        return sorted(path.name for path in there.iterdir() if not path.is_symlink())

    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLD),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"TMPDIR": str(there)},
    )
    assert other.stdout is not None
    assert await asyncio.wait_for(other.stdout.readline(), 60) == b"open\n"
    (theirs,) = list_folders()
    async with open_histories(site, site.objects):
        assert len(list_folders()) == 2
    assert list_folders() == [theirs]

    other.kill()
    await other.wait()
    async with open_histories(site, site.objects):
        (ours,) = list_folders()
        assert ours != theirs
    assert list_folders() == []
    assert sorted(os.listdir(tmp_path)) == ["histories", "tmp"]
