"""The repository outside that a project comes from: reading its files, and publishing what the turns have changed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from chat_proc.git import GitRules, Repository, fetch_into, find_branch, push, resolve_commit
from everturn.core.errors import Conflict, Invalid
from everturn.core.kept_folders import KeptFolders
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.git import MAX_LISTING_BYTES, GitCommit, GitFolder, GitUnavailable
from everturn.history.model import Origin
from everturn.history.repository import write_blob, write_commit_head, write_path

MAX_FETCHED: Final = 4
"""Fetched commits that a worker keeps."""
MAX_FETCHED_BYTES: Final = 2 * 1024 * 1024 * 1024
OURS: Final = "everturn/"
"""The beginning of all branches that are published."""
_TRAILER: Final = "Everturn-Conversation: "


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published: the files of the project, the paths that it deleted, and the texts for the commit."""

    conversation_id: str
    branch: str
    message: str
    time_s: int
    files: Mapping[str, Artifact]
    deleted: Sequence[str]

    @property
    def full_message(self) -> str:
        return f"{self.message.strip()}\n\n{self.trailer}\n"

    @property
    def trailer(self) -> str:
        return f"{_TRAILER}{self.conversation_id}"


class OutsideRepository:
    """One repository, at the commit with which each project began."""

    def __init__(
        self, repository: Repository, rules: GitRules, kept: KeptFolders[tuple[str, str], str], objects: Objects
    ) -> None:
        self.repository = repository
        self._rules = rules
        self._kept = kept
        self._objects = objects
        self._publishing = asyncio.Lock()

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
        async with self._kept.open((origin.url, origin.commit), partial(self._fetch, origin)) as (path, _):
            yield GitFolder(path, self._rules.limits)

    async def _fetch(self, origin: Origin, path: Path, present: str | None) -> str:
        if present is None:
            folder = GitFolder(path, self._rules.limits)
            await folder.init()
            # By its name, so that it is found after the branch has moved on.
            await fetch_into(folder, replace(self.repository, ref=origin.commit), origin.commit, self._rules)
        return origin.commit

    async def publish(self, origin: Origin, publication: Publication) -> str:
        """Push a commit with the project to a branch of ours; returns the commit. It continues what this conversation
        has published there before.

        Raises Conflict if the branch has commits by others, Invalid if nothing has changed since, and
        RepositoryRefused, BadSecrets, GitUnavailable, Unavailable.
        """
        async with self._publishing, self._open_folder(origin) as folder:
            parent = await find_branch(self.repository, publication.branch, self._rules)
            if parent is not None:
                await fetch_into(folder, replace(self.repository, ref=parent), parent, self._rules)
                await _check_ours(folder, parent, publication)
            ref = f"refs/everturn/published/{publication.conversation_id}"
            tree, modes = await _find_tree(folder, origin.commit), await _load_modes(folder, origin.commit)
            stream = self._write(publication, parent or origin.commit, tree, ref, modes)
            await folder.run(["fast-import", "--quiet", "--force"], limit_s=self._rules.fetch_s, given=stream)
            commit = (await folder.run(["rev-parse", "--verify", f"{ref}^{{commit}}"])).decode().strip()
            if await _find_tree(folder, commit) == await _find_tree(folder, parent or origin.commit):
                raise Invalid("There is nothing to publish: no file differs from what is published already.")
            await self._push(folder, commit, publication.branch)
        return commit

    async def _push(self, folder: GitFolder, commit: str, branch: str) -> None:
        try:
            await push(folder, self.repository, commit, branch, self._rules)
        except GitUnavailable as error:
            # The answer may be lost although the commit has arrived.
            if await find_branch(self.repository, branch, self._rules) != commit:
                raise error

    async def _write(
        self, publication: Publication, parent: str, tree: str, ref: str, modes: Mapping[str, str]
    ) -> AsyncGenerator[bytes]:
        """The stream of git fast-import: the tree of the origin, with what the project has in its place."""
        for mark, artifact in enumerate(publication.files.values(), start=1):
            async for chunk in write_blob(self._objects, artifact, mark):
                yield chunk
        yield write_commit_head(ref, publication.full_message, publication.time_s)
        yield f'from {parent}\nM 040000 {tree} ""\n'.encode()
        for path in publication.deleted:
            yield f"D {write_path(path)}\n".encode()
        for mark, path in enumerate(publication.files, start=1):
            yield f"M {modes.get(path, '100644')} :{mark} {write_path(path)}\n".encode()
        yield b"\n"


async def _check_ours(folder: GitFolder, commit: str, publication: Publication) -> None:
    message = (await folder.run(["log", "-1", "--format=%B", commit])).decode(errors="replace")
    if publication.trailer not in message.splitlines():
        raise Conflict(
            f"The newest commit of the branch {publication.branch} is not one that this conversation has published. "
            "Choose another branch."
        )


async def _find_tree(folder: GitFolder, commit: str) -> str:
    return (await folder.run(["rev-parse", "--verify", f"{commit}^{{tree}}"])).decode().strip()


async def _load_modes(folder: GitFolder, commit: str) -> Mapping[str, str]:
    """The modes of programs, by path: their new versions stay programs."""
    listed = await folder.run(["ls-tree", "-r", "-z", "--full-tree", commit], output_bytes=MAX_LISTING_BYTES)
    entries = (entry.partition(b"\t") for entry in listed.split(b"\0")[:-1])
    return {name.decode(errors="surrogateescape"): "100755" for head, _, name in entries if head.startswith(b"100755 ")}
