"""The git history of a conversation's workspace: a commit for each turn that changed files, on the branch `main`.

It is built from the rows of the files, so it is exactly as durable, as fenced and as erasable as they are, and any
process can build it again: the same turns give the same commits, in a fork too. A folder of this process keeps what
was built; what is missing is added on the next use.
"""

import asyncio
import re
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from everturn.core.errors import Invalid, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.kept_folders import FillRefused, KeptFolders, open_root
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.git import GitCommit, GitFolder, GitLimits, GitUnavailable, OutputTooLong
from everturn.history.model import TurnChanges, WorkspaceChanges
from everturn.history.project import count_until

BRANCH: Final = "refs/heads/main"
PENDING: Final = "refs/everturn/pending/"
MAX_KEPT: Final = 32
"""Repositories that a process keeps."""
MAX_KEPT_BYTES: Final = 1024 * 1024 * 1024
DISK_PART: Final = 4
"""A repository, and all that are kept, have at most a fourth of the file system with the temporary files."""
BUILDS: Final = 2
"""Repositories that a process builds at once."""
BUILD_WAIT_S: Final = 60.0
"""For the builds before it."""
MAX_WAITING: Final = 8
"""Builds that wait for others. A person has only one at a time."""
BUILD_S: Final = 120.0
LIMITS: Final = GitLimits(disk_bytes=512 * 1024 * 1024, run_s=BUILD_S)
MAX_DIFF_BYTES: Final = 1024 * 1024
MAX_BLAMED_LINES: Final = 2_000
MAX_BLAMED_BYTES: Final = 1024 * 1024
MAX_BLAME_BYTES: Final = 4 * 1024 * 1024
"""Of the answer of git: the text of the lines, and some hundred bytes for each."""
MAX_LIST_BYTES: Final = 41 * 20_001
"""A commit for each change."""
AUTHOR: Final = "Everturn <agent@everturn.invalid>"
_IGNORED: Final = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that HFS+ ignores in names."""
_RESERVED: Final = frozenset({".git", "git~1"})
"""Names, in lower case, that git does not check out, because on some file systems they are its own folder."""
_BLAMED: Final = re.compile(r"[0-9a-f]{40} [0-9]+ [0-9]+(?: [0-9]+)?$")
_DIFF: Final = ("--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "--full-index")


class TooManyBuilds(GitUnavailable, FillRefused):
    """Other histories are being built. Try again in a minute."""


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """The commit of a turn."""

    commit: str
    turn: TurnChanges


@dataclass(frozen=True, slots=True)
class BlamedLine:
    """A line of a file, and the turn that wrote it. `line` counts from 1."""

    line: int
    turn_id: TurnId
    text: str


class GitHistory:
    """The repository of a conversation, to read. `commits` are those of its turns, oldest first."""

    def __init__(self, folder: GitFolder, commits: Sequence[TurnCommit]) -> None:
        self.folder = folder
        self.commits = tuple(commits)

    def find(self, name: str) -> TurnCommit:
        """The commit of a turn's id, of at least seven digits of a commit, or of HEAD. A turn that changed nothing has
        the commit of the turn before. Raises NotFound."""
        found = self._list_named(name)
        if len(found) == 1:
            return found[0]
        raise NotFound(f"{name[:80]!a} names no commit of this conversation.")

    def _list_named(self, name: str) -> Sequence[TurnCommit]:
        if name == "HEAD":
            return self.commits[-1:]
        if name.startswith("turn_"):
            return self.commits[: self.count_until(name)][-1:]
        return [each for each in self.commits if len(name) >= 7 and each.commit.startswith(name)]

    def count_until(self, turn_id: str) -> int:
        """How many commits there are up to a turn, whether it has one or not."""
        return count_until([each.turn for each in self.commits], turn_id)

    def find_before(self, commit: TurnCommit) -> TurnCommit | None:
        """The commit before this one, if there is one."""
        place = self.commits.index(commit)
        return self.commits[place - 1] if place else None

    def open_commit(self, commit: TurnCommit) -> GitCommit:
        """Its files; close it."""
        return GitCommit(self.folder, commit.commit)

    async def diff(self, old: TurnCommit | None, new: TurnCommit, paths: Sequence[str] = ()) -> str:
        """What changed between two commits, in the form of `git diff`; from an empty folder without `old`. Raises
        Invalid if that is too long, and GitUnavailable."""
        command = ["diff-tree", "--patch", *_DIFF]
        command += ["--root", "--no-commit-id", new.commit] if old is None else [old.commit, new.commit]
        try:
            changed = await self.folder.run([*command, "--", *paths], output_bytes=MAX_DIFF_BYTES)
        except OutputTooLong as refused:
            raise Invalid(
                f"The changes have more than {MAX_DIFF_BYTES // 1024} KiB. Name some of the files."
            ) from refused
        return changed.decode(errors="replace")

    async def read(self, commit: TurnCommit, path: str, *, max_bytes: int) -> bytes:
        """The content of a file. Raises NotFound, Invalid if it is larger, and GitUnavailable."""
        opened = GitCommit(self.folder, commit.commit)
        try:
            found = [entry for entry in await opened.list_entries([path]) if entry.path == path]
            if not found:
                raise NotFound(path)
            if found[0].size > max_bytes:
                raise Invalid(f"{path} has {found[0].size} bytes; at most {max_bytes} can be read.")
            return await opened.read(found[0])
        finally:
            await opened.close()

    async def blame(self, commit: TurnCommit, path: str, first: int, count: int) -> Sequence[BlamedLine]:
        """Which turn wrote each of these lines of a text file, as far as it has them. Raises NotFound, Invalid, and
        GitUnavailable."""
        content = await self.read(commit, path, max_bytes=MAX_BLAMED_BYTES)
        if b"\0" in content:
            raise Invalid(f"{path} is not a text.")
        lines = await asyncio.to_thread(_split_lines, content)
        last = min(first + min(count, MAX_BLAMED_LINES) - 1, len(lines))
        if last < first:
            raise Invalid(f"{path} has {len(lines)} lines.")
        command = ["blame", "--porcelain", f"-L{first},{last}", commit.commit, "--", path]
        answer = await self.folder.run(command, output_bytes=MAX_BLAME_BYTES)
        return await asyncio.to_thread(self._read_blame, answer, lines[first - 1 : last], first)

    def _read_blame(self, answer: bytes, lines: Sequence[str], first: int) -> Sequence[BlamedLine]:
        turns = {each.commit: each.turn.turn_id for each in self.commits}
        commits = [line[:40] for line in answer.decode(errors="replace").split("\n") if _BLAMED.match(line)]
        numbered = enumerate(zip(commits, lines, strict=True), start=first)
        return [BlamedLine(line, turns[commit], text) for line, (commit, text) in numbered]


def _split_lines(content: bytes) -> list[str]:
    return content.decode(errors="replace").removesuffix("\n").split("\n") if content else []


@asynccontextmanager
async def open_histories(changes: WorkspaceChanges, objects: Objects) -> AsyncGenerator["GitHistories"]:
    """Histories in a folder of this process."""
    async with open_root("everturn-histories-") as root:
        part = (await asyncio.to_thread(shutil.disk_usage, root)).total // DISK_PART
        kept = KeptFolders[ConversationId, Sequence[TurnCommit]](
            root, max_kept=MAX_KEPT, max_bytes=min(MAX_KEPT_BYTES, part)
        )
        limits = replace(LIMITS, disk_bytes=min(LIMITS.disk_bytes, part))
        async with kept.removing_unused():
            yield GitHistories(changes, objects, kept, limits=limits)


class GitHistories:
    """Builds the histories of conversations, and keeps those that were used last."""

    def __init__(
        self,
        changes: WorkspaceChanges,
        objects: Objects,
        kept: KeptFolders[ConversationId, Sequence[TurnCommit]],
        *,
        limits: GitLimits | None = None,
    ) -> None:
        self._changes = changes
        self._objects = objects
        self._kept = kept
        self._limits = limits
        self._builders = set[str]()
        """The people for whom a history is built."""
        self._waiting = 0
        self._has_ended = asyncio.Event()
        """Set when a build ends, and then replaced."""

    @asynccontextmanager
    async def open(self, principal: Principal, conversation_id: ConversationId) -> AsyncGenerator[GitHistory]:
        """The history of all turns that have ended. A file that is found to be harmful later changes its turn, and so
        all commits that follow. Raises RepositoryRefused or Invalid if it is too large, TooManyBuilds if this or
        other people have too many of them built at the moment, and Unavailable."""
        turns = await self._changes.load(principal, conversation_id)
        fill, fits = partial(self._add, turns, principal.limited_as), partial(_have_one_beginning, turns)
        try:
            async with self._kept.open(conversation_id, fill, fits=fits) as (path, commits):
                yield GitHistory(GitFolder(path, self._limits or LIMITS), commits)
        except TooManyBuilds:
            raise
        except FillRefused as refused:
            raise TooManyBuilds(refused.detail) from refused

    async def remove(self, conversation_id: ConversationId) -> None:
        """Remove what is kept of a conversation that was erased; its readers keep it until they end."""
        await self._kept.remove(conversation_id)

    async def commit(self, history: GitHistory, turn: TurnChanges) -> TurnCommit:
        """A commit of a turn that has not ended over those of `history`, outside their branch; the same for the same
        changes. Raises RepositoryRefused, and Unavailable."""
        ref = f"{PENDING}{turn.digest}"
        stream = self._write_commits([turn], ref, after=_find_last(history.commits))
        await history.folder.run(["fast-import", "--quiet", "--force"], limit_s=BUILD_S, given=stream)
        found = await history.folder.run(["rev-parse", "--verify", f"{ref}^{{commit}}"])
        return TurnCommit(found.decode().strip(), turn)

    async def _add(
        self, turns: Sequence[TurnChanges], person: str, path: Path, commits: Sequence[TurnCommit] | None
    ) -> Sequence[TurnCommit]:
        """The commits of these turns, after those that are missing were added."""
        folder = GitFolder(path, self._limits or LIMITS)
        built = list(commits or ())
        missing = turns[len(built) :]
        if not missing and commits is not None:
            return tuple(built)
        async with self._take_turn(person):
            if commits is None:
                await folder.init()
            if missing:
                stream = self._write_commits(missing, BRANCH, after=_find_last(built))
                await folder.run(["fast-import", "--quiet"], limit_s=BUILD_S, given=stream)
        if missing:
            listed = await folder.run(["rev-list", "--first-parent", "--reverse", BRANCH], output_bytes=MAX_LIST_BYTES)
            built += map(TurnCommit, listed.decode().split()[len(built) :], missing)
        return tuple(built)

    @asynccontextmanager
    async def _take_turn(self, person: str) -> AsyncGenerator[None]:
        """Build one history of a person at once, and BUILDS of all. Raises TooManyBuilds."""
        if self._waiting == MAX_WAITING:
            raise TooManyBuilds()
        self._waiting += 1
        try:
            async with asyncio.timeout(BUILD_WAIT_S):
                while person in self._builders or len(self._builders) == BUILDS:
                    await self._has_ended.wait()
        except TimeoutError as error:
            raise TooManyBuilds() from error
        finally:
            self._waiting -= 1
        self._builders.add(person)
        try:
            yield
        finally:
            self._builders.discard(person)
            self._has_ended.set()
            self._has_ended = asyncio.Event()

    async def _write_commits(self, turns: Sequence[TurnChanges], ref: str, *, after: str) -> AsyncGenerator[bytes]:
        """The stream of git fast-import with a commit for each turn, the first one over the commit `after`."""
        for turn in turns:
            changes = [change for change in turn.changes if is_possible_path(change.path)]
            for mark, change in enumerate(changes, start=1):
                if change.artifact is not None:
                    async for chunk in write_blob(self._objects, change.artifact, mark):
                        yield chunk
            yield write_commit_head(ref, turn.subject, int(turn.accepted_at.timestamp()))
            if after:
                yield f"from {after}\n".encode()
            after = ""  # The next one's parent is this one.
            for mark, change in enumerate(changes, start=1):
                path = write_path(change.path)
                yield (f"D {path}\n" if change.artifact is None else f"M 100644 :{mark} {path}\n").encode()
            yield b"\n"


async def write_blob(objects: Objects, artifact: Artifact, mark: int) -> AsyncGenerator[bytes]:
    """A file in a stream of git fast-import. Raises Unavailable."""
    yield f"blob\nmark :{mark}\ndata {artifact.size}\n".encode()
    async with aclosing(objects.load_stream(artifact.object_key)) as chunks:
        async for chunk in chunks:
            yield chunk
    yield b"\n"


def write_commit_head(ref: str, message: str, time_s: int, *, author: str = AUTHOR) -> bytes:
    """The beginning of a commit in a stream of git fast-import: what its parent and files are follows."""
    data = message.encode()
    head = f"commit {ref}\nauthor {author} {time_s} +0000\ncommitter {AUTHOR} {time_s} +0000\ndata {len(data)}\n"
    return head.encode() + data + b"\n"


def write_path(path: str) -> str:
    """A path in a stream of git fast-import."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _have_one_beginning(turns: Sequence[TurnChanges], commits: Sequence[TurnCommit]) -> bool:
    """Whether these are the commits of the first of the turns, or of all. If there are more, a turn has lost all its
    files, or the turns are those of nobody: none."""
    pairs = zip(turns, commits, strict=False)
    return len(commits) <= len(turns) and all(turn.digest == each.turn.digest for turn, each in pairs)


def _find_last(commits: Sequence[TurnCommit]) -> str:
    return commits[-1].commit if commits else ""


def is_possible_path(path: str) -> bool:
    """Whether a commit may have a file of this name: not if a file system could take a part of it for `.git`."""
    return not any(
        _IGNORED.sub("", part).lower().partition(":")[0].rstrip(" .") in _RESERVED for part in path.split("/")
    )
