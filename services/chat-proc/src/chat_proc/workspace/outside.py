"""The repository outside that a project comes from: reading its files, and pushing what the turns have changed."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from chat_proc.git import (
    GitRules,
    Repository,
    fetch_into,
    find_branch,
    has_commit,
    matches_branch,
    push,
    resolve_commit,
)
from chat_proc.workspace.local import MAX_FILE_BYTES
from chat_proc.workspace.publishing import (
    Edit,
    Publication,
    choose_edits,
    describe_edits,
    keep_relevant,
    list_doubtful,
    show_path,
)
from everturn.core.errors import Conflict, Invalid
from everturn.core.kept_folders import KeptFolders
from everturn.core.settings import BadSecrets
from everturn.files.objects import Objects
from everturn.git import (
    MAX_LISTING_BYTES,
    GitCommit,
    GitFolder,
    GitUnavailable,
    RepositoryRefused,
    TreeEntry,
    open_git_folder,
)
from everturn.history.model import Origin
from everturn.history.repository import write_blob, write_commit_head, write_path

MAX_FETCHED: Final = 4
"""Fetched commits that a worker keeps."""
MAX_FETCHED_BYTES: Final = 2 * 1024 * 1024 * 1024
_PUBLISHED: Final = "refs/everturn/published"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that was built and not pushed yet. `tip` is the commit of the branch, empty if there is none, and
    `parent` the one that this commit continues, with `about` saying which that is. `lines` are the numbers of added and
    deleted lines by path."""

    folder: GitFolder
    commit: str
    tip: str
    parent: str
    about: str
    edits: Sequence[Edit]
    lines: Mapping[str, tuple[str, str]]


class OutsideRepository:
    """One repository, at the commit with which each project began."""

    def __init__(
        self,
        repository: Repository,
        rules: GitRules,
        kept: KeptFolders[tuple[Repository, str], str],
        objects: Objects,
        branches: str = "",
    ) -> None:
        """`branches` is the pattern of those that may be pushed to; empty for none."""
        self.repository = repository
        self.branches = branches
        self._objects = objects
        self._rules = rules
        self._kept = kept

    async def find_origin(self, origin: Origin | None) -> Origin:
        """Where a project begins that has none yet. Raises Invalid, RepositoryRefused, BadSecrets, GitUnavailable."""
        if origin is None:
            return Origin(self.repository.url, await resolve_commit(self.repository, self._rules))
        if origin.url != self.repository.url:
            raise Invalid(f"The project of this conversation comes from {origin.url}, which this agent can't use now.")
        return origin

    @asynccontextmanager
    async def open(self, origin: Origin) -> AsyncGenerator[GitCommit]:
        """The files of the commit. Raises RepositoryRefused, BadSecrets, GitUnavailable."""
        async with self._open_folder(origin) as folder:
            commit = GitCommit(folder, origin.commit)
            try:
                yield commit
            finally:
                await commit.close()

    @asynccontextmanager
    async def _open_folder(self, origin: Origin) -> AsyncGenerator[GitFolder]:
        # Not by its address alone: what one bundle's token opens is not for another bundle.
        async with self._kept.open((self.repository, origin.commit), partial(self._fetch, origin)) as (path, _):
            yield GitFolder(path, self._rules.limits)

    async def _fetch(self, origin: Origin, path: Path, present: str | None) -> str:
        if present is None:
            folder = GitFolder(path, self._rules.limits)
            await folder.init()
            # By its name, so that it is found after the branch has moved on.
            await fetch_into(folder, replace(self.repository, ref=origin.commit), origin.commit, self._rules)
        return origin.commit

    async def find_tip(self, branch: str) -> str:
        """The commit of a branch that may be pushed to; empty if there is none. Raises Invalid for other branches,
        RepositoryRefused, BadSecrets, GitUnavailable."""
        if not self.branches or not matches_branch(branch, self.branches):
            raise Invalid(f"{branch!a} can't be pushed to: only {self.branches} can, where * is any name.")
        return await find_branch(self.repository, branch, self._rules)

    async def has_pushed(self, branch: str, commit: str) -> bool:
        """Whether a commit is among the newest ones of a branch. Raises RepositoryRefused, BadSecrets,
        GitUnavailable."""
        return await has_commit(self.repository, branch, commit, self._rules)

    @asynccontextmanager
    async def prepare(self, origin: Origin, publication: Publication, tip: str) -> AsyncGenerator[Prepared]:
        """Build the commit that continues the branch, which is at `tip`, or the commit with which the project began.
        The same publication and tip give the same commit.

        Raises Conflict if the branch has other versions of the same files, Invalid if there is nothing to publish or
        too much, RepositoryRefused, BadSecrets, GitUnavailable, Unavailable.
        """
        parent = tip or origin.commit
        base = await self._list(origin, publication)
        async with (
            self._open_folder(replace(origin, commit=parent)) as kept,
            open_git_folder(self._rules.limits) as folder,
        ):
            there = base if parent == origin.commit else await _list_relevant(GitCommit(kept, parent), publication)
            contents = await _hash_contents(GitCommit(kept, parent), list_doubtful(publication, base, there))
            edits = await asyncio.to_thread(choose_edits, publication, base, there, contents)
            await folder.init()
            # What is built is in a folder of its own, and finds the objects of the fetched commit in that one.
            await asyncio.to_thread(_borrow_objects, kept.path, folder.path)
            stream = self._write_commit(publication, parent, edits)
            await folder.run(["fast-import", "--quiet"], limit_s=self._rules.fetch_s, given=stream)
            commit = (await folder.run(["rev-parse", "--verify", f"{_PUBLISHED}^{{commit}}"])).decode().strip()
            lines = await _count_lines(folder, parent, commit, limit_s=self._rules.fetch_s)
            if not lines:
                raise Invalid("There is nothing to publish: the branch has all that this project has changed.")
            changed = [edit for edit in edits if edit.path in lines]
            about = await _describe_commit(folder, parent)
            yield Prepared(folder, commit, tip, parent, about, changed, lines)

    async def push(self, prepared: Prepared, branch: str) -> None:
        """Push a commit. Raises Conflict if the branch has moved, and GitUnavailable with what the server says if it
        refuses, RepositoryRefused, BadSecrets."""
        try:
            await push(prepared.folder, self.repository, prepared.commit, branch, prepared.tip, self._rules)
        except GitUnavailable as error:
            # The answer may be lost although the commit has arrived.
            try:
                tip = await self.find_tip(branch)
                has_arrived = tip == prepared.commit or (
                    tip not in ("", prepared.tip) and await self.has_pushed(branch, prepared.commit)
                )
            except (GitUnavailable, RepositoryRefused, BadSecrets) as unknown:
                raise GitUnavailable(
                    f"It is not known whether the commit {prepared.commit} has arrived. {error.detail} Look at the "
                    f"branch {branch} before you publish again."
                ) from unknown
            if has_arrived:
                return
            if tip != prepared.tip:
                raise build_moved(branch, prepared.tip, tip) from error
            raise

    async def _list(self, origin: Origin, publication: Publication) -> Mapping[str, TreeEntry]:
        async with self.open(origin) as commit:
            return await _list_relevant(commit, publication)

    async def _write_commit(
        self, publication: Publication, parent: str, edits: Sequence[Edit]
    ) -> AsyncGenerator[bytes]:
        """The stream of git fast-import with one commit."""
        for mark, edit in enumerate(edits, start=1):
            if edit.artifact is not None:
                async for chunk in write_blob(self._objects, edit.artifact, mark):
                    yield chunk
        yield (
            write_commit_head(_PUBLISHED, publication.message, publication.time_s, author=publication.author)
            + f"from {parent}\n".encode()
        )
        for mark, edit in enumerate(edits, start=1):
            path, mode = write_path(edit.path), "100755" if edit.is_program else "100644"
            yield (f"D {path}\n" if edit.artifact is None else f"M {mode} :{mark} {path}\n").encode()
        yield b"\n"


def describe_push(prepared: Prepared, publication: Publication, url: str) -> str:
    """What a person has to know to decide on a push, in lines of plain text."""
    author = publication.author.partition(" <")[0]
    if prepared.tip:
        where = [f"The branch exists. The push continues its newest commit, {prepared.about}."]
    else:
        where = [f"The branch is new. It begins at the commit with which the project began, {prepared.about}."]
    head = [f"Push 1 commit to the branch {publication.branch} of {url}.", *where]
    head.append(f"The commit {prepared.commit[:12]} has the author {author} and the committer Everturn.")
    return "\n".join([*head, *describe_edits(prepared.edits, prepared.lines)])


def build_moved(branch: str, approved: str, tip: str) -> Conflict:
    """The error for a branch that is not where it was when a person approved the push."""
    was, now = (f"at {commit[:12]}" if commit else "absent" for commit in (approved, tip))
    return Conflict(
        f"The branch {branch} has moved since this was approved: it was {was} and is {now}. Nothing of it was changed. "
        "Publish again: a person then sees what the push changes now."
    )


async def _list_relevant(commit: GitCommit, publication: Publication) -> Mapping[str, TreeEntry]:
    entries = await commit.list_entries()
    return await asyncio.to_thread(keep_relevant, entries, publication)


async def _hash_contents(commit: GitCommit, entries: Sequence[TreeEntry]) -> Mapping[str, str]:
    """The SHA-256 of these files; without those that are too large to be files of a project."""
    hashed: dict[str, str] = {}
    try:
        for entry in entries:
            if entry.size <= MAX_FILE_BYTES:
                digest = await asyncio.to_thread(hashlib.sha256, await commit.read(entry))
                hashed[entry.path] = digest.hexdigest()
    finally:
        await commit.close()
    return hashed


def _borrow_objects(kept: Path, folder: Path) -> None:
    info = folder / "objects" / "info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "alternates").write_text(f"{kept / 'objects'}\n", encoding="utf-8")
    if (kept / "shallow").exists():
        shutil.copyfile(kept / "shallow", folder / "shallow")


async def _count_lines(folder: GitFolder, old: str, new: str, *, limit_s: float) -> Mapping[str, tuple[str, str]]:
    """The numbers of added and deleted lines of each changed file, dashes for a binary one."""
    command = ["diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", old, new]
    listed = await folder.run(command, limit_s=limit_s, output_bytes=MAX_LISTING_BYTES)
    fields = (field.decode(errors="surrogateescape").split("\t", 2) for field in listed.split(b"\0")[:-1])
    return {path: (added, deleted) for added, deleted, path in fields}


async def _describe_commit(folder: GitFolder, commit: str) -> str:
    """The commit, its subject, author and day, as one line."""
    said = await folder.run(["log", "-1", "--format=%s%x00%an%x00%cs", commit, "--"])
    subject, author, day = (show_path(part) for part in said.decode(errors="replace").strip().split("\0"))
    return f"{commit[:12]} \u201c{subject[:100]}\u201d by {author[:60]} on {day}"
