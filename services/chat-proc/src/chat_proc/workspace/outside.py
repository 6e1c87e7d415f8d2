"""The repository outside that a project comes from."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from chat_proc.git import GitRules, Repository, fetch_into, resolve_commit
from everturn.core.errors import Invalid
from everturn.core.kept_folders import KeptFolders
from everturn.git import GitCommit, GitFolder
from everturn.history.model import Origin

MAX_FETCHED: Final = 4
"""Fetched commits that a worker keeps."""
MAX_FETCHED_BYTES: Final = 2 * 1024 * 1024 * 1024


class OutsideRepository:
    """One repository, at the commit with which each project began."""

    def __init__(self, repository: Repository, rules: GitRules, kept: KeptFolders[tuple[Repository, str], str]) -> None:
        self.repository = repository
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
