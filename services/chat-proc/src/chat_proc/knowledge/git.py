"""The files of a knowledge space, from a git repository."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

from chat_proc.git import GitRules, Repository, fetch_commit
from chat_proc.knowledge.trees import Listing, ListingBuilder, TreeFile, TreeLimits
from everturn.git import GitCommit, TreeEntry


class GitTree:
    """A fetched commit."""

    def __init__(self, commit: GitCommit, name: str, roots: Mapping[str, str], limits: TreeLimits) -> None:
        self._commit = commit
        self._name = name
        self._roots = roots
        self._limits = limits

    async def list_files(self) -> Listing:
        below = [] if "" in self._roots.values() else sorted(set(self._roots.values()))
        return await asyncio.to_thread(self._choose, await self._commit.list_entries(below))

    async def read(self, file: TreeFile) -> bytes:
        return await self._commit.read(TreeEntry("file", file.origin, file.size, file.digest))

    def _choose(self, entries: Iterable[TreeEntry]) -> Listing:
        listing = ListingBuilder(self._name, self._roots, self._limits)
        for entry in entries:
            if entry.kind != "file":
                listing.skip(entry.path, f"it is a {entry.kind}")
            elif paths := listing.try_accept(entry.path, entry.size):
                listing.add(paths, entry.path, entry.size, entry.digest)
        return listing.build()


@asynccontextmanager
async def open_git_tree(
    repository: Repository,
    commit: str,
    rules: GitRules,
    *,
    name: str,
    roots: Mapping[str, str],
    limits: TreeLimits,
) -> AsyncGenerator[GitTree]:
    """Fetch `commit`, which `resolve_commit` found. Raises RepositoryRefused, GitUnavailable, BadSecrets."""
    async with fetch_commit(repository, commit, rules) as fetched:
        yield GitTree(fetched, name, roots, limits)
