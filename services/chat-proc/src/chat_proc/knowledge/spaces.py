"""Keeps the knowledge of an open bundle up to date: looks at its files, and builds a new version when they change."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog

from chat_proc.git import GitRules, Repository, resolve_commit
from chat_proc.knowledge.building import BuildReport, DocumentConverter, LeaseLost, SpaceBuilder, keep_lease
from chat_proc.knowledge.config import KnowledgeSpace
from chat_proc.knowledge.git import open_git_tree
from chat_proc.knowledge.reader import KnowledgeReader
from chat_proc.knowledge.trees import FilesChanged, FolderTree, Listing, SpaceRefused, Tree, TreeLimits
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError
from everturn.core.loops import guarded
from everturn.core.metrics import KNOWLEDGE_BUILD_SECONDS, KNOWLEDGE_DOCUMENTS
from everturn.core.settings import BadSecrets
from everturn.git import GitUnavailable, RepositoryRefused
from everturn.knowledge.store import LEASE_S, KnowledgeStore, SpaceState, SpaceVersion, WantedSpace
from everturn.memory.embedder import Embedder

_log = structlog.get_logger(__name__)

FORMAT: Final = 2
"""Part of every signature. Increase it when documents have to be cut or encoded in another way."""
BUILD_TIMEOUT_S = 3_600.0
"""Limit of one attempt; the next one continues it."""
MAX_LOGGED = 10


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds until a worker looks at a space again: after it was up to date, while another worker builds it or it has
    failed a moment ago, and after an error. And until a builder renews its lease."""

    folder_s: float = 30.0
    git_s: float = 300.0
    waiting_s: float = 5.0
    failed_s: float = 30.0
    renew_s: float = LEASE_S / 4


@dataclass(frozen=True, slots=True)
class KnowledgePorts:
    """What all spaces of a worker share."""

    store: KnowledgeStore
    embedder: Embedder
    converter: DocumentConverter
    git: GitRules
    limits: TreeLimits = field(default_factory=TreeLimits)
    pauses: Pauses = field(default_factory=Pauses)


@asynccontextmanager
async def open_knowledge(
    bundle_id: str, spaces: Sequence[KnowledgeSpace], folder: Path | None, ports: KnowledgePorts
) -> AsyncGenerator[KnowledgeReader | None]:
    """The knowledge of a bundle, None without spaces. Its spaces are built and kept up to date while it is open;
    versions that were built before serve at once. Only a worker with the bundle's `folder` builds what is in it."""
    indexers = [SpaceIndexer(bundle_id, space, folder, ports) for space in spaces]
    tasks = [asyncio.create_task(indexer.run()) for indexer in indexers if indexer.has_files]
    reader = KnowledgeReader(
        ports.store,
        ports.embedder,
        wanted=lambda: [indexer.wanted for indexer in indexers],
        problems=lambda: [indexer.problem for indexer in indexers if indexer.problem],
    )
    try:
        yield reader if indexers else None
    finally:
        await end_tasks(*tasks)


class SpaceIndexer:
    """One space of one bundle in this worker."""

    def __init__(self, bundle_id: str, space: KnowledgeSpace, folder: Path | None, ports: KnowledgePorts) -> None:
        self._space = space
        self._ports = ports
        self._builder = SpaceBuilder(ports.store, ports.embedder, ports.converter)
        self._tree = None
        if not space.repo and folder is not None:
            self._tree = FolderTree(folder, space.name, space.roots, ports.limits)
        self._repository = Repository(space.repo, space.ref, space.token, bundle_id)
        self._holder = secrets.token_hex(8)
        self._version: SpaceVersion | None = None
        self._commit = ""
        self._resolved_at_s = 0.0
        self.wanted = WantedSpace(bundle_id, space.name)
        """The version that this worker wants; without a signature until its files were seen."""
        self.problem = ""
        """Why the last look at the files failed, if it did."""

    @property
    def has_files(self) -> bool:
        """Whether this worker can look at the files."""
        return self._tree is not None or bool(self._space.repo)

    async def run(self) -> None:
        """Run until cancelled."""
        pauses, has_changed = self._ports.pauses, False
        while True:
            pause_s = pauses.failed_s
            with guarded("knowledge", bundle_id=self.wanted.bundle_id):
                try:
                    pause_s = await self.update()
                    has_changed = False
                except LeaseLost:
                    pause_s = pauses.waiting_s
                except FilesChanged as error:
                    # Files that change once are read again. If they keep changing, that is why there is no new version.
                    pause_s = pauses.waiting_s
                    if has_changed:
                        self._report(error)
                    has_changed = True
                except (EverturnError, TimeoutError) as error:
                    self._report(error)
            await asyncio.sleep(pause_s)

    async def update(self) -> float:
        """Look at the files, and build their version unless it exists. Returns the pause before the next look. Raises
        what says why that is not possible: Unavailable, FilesChanged, SpaceRefused, GitUnavailable, LeaseLost,
        TimeoutError."""
        store, pauses = self._ports.store, self._ports.pauses
        if self._version is not None:
            await store.want(self._version)
        listing, commit = await self._load_listing()
        marks = commit if listing is None else [(file.path, file.digest) for file in listing.files]
        version = await asyncio.to_thread(self._build_version, marks)
        state = await store.want(version)
        self._version, self.wanted = version, replace(self.wanted, signature=version.signature)
        if state is not SpaceState.READY:
            if not await store.try_lease(version, self._holder):
                return pauses.waiting_s
            await self._build(version, listing, commit)
        self.problem = ""
        while await store.delete_unwanted():
            """There may be more."""
        return pauses.git_s if self._space.repo else pauses.folder_s

    async def _load_listing(self) -> tuple[Listing | None, str]:
        """The files of a folder, or the commit of a repository."""
        if self._tree is not None:
            return await self._tree.list_files(), ""
        now_s = time.monotonic()
        if not self._commit or now_s - self._resolved_at_s >= self._ports.pauses.git_s:
            self._commit = ""
            self._commit = await resolve_commit(self._repository, self._ports.git)
            self._resolved_at_s = now_s
        return None, self._commit

    def _build_version(self, marks: object) -> SpaceVersion:
        encoder = self._ports.embedder.name
        signed = [FORMAT, encoder, self._space.repo, sorted(self._space.roots.items()), marks]
        return SpaceVersion(
            self.wanted.bundle_id,
            self._space.name,
            sha256(json.dumps(signed).encode()).hexdigest(),
            encoder,
            untrusted=bool(self._space.repo),
        )

    async def _build(self, version: SpaceVersion, listing: Listing | None, commit: str) -> None:
        """Raises Unavailable, LeaseLost, TimeoutError, which leave the version unfinished, and SpaceRefused,
        RepositoryRefused, BadSecrets and GitUnavailable, with which it has failed."""
        began_s = time.monotonic()
        _log.info("Building a knowledge space", bundle_id=version.bundle_id, space=version.name, commit=commit or None)
        store, holder = self._ports.store, self._holder
        async with keep_lease(store, version, holder, self._ports.pauses.renew_s):
            try:
                async with asyncio.timeout(BUILD_TIMEOUT_S), self._open_tree(commit) as tree:
                    listing = listing or await tree.list_files()
                    report = await self._builder.build(
                        version,
                        holder,
                        tree,
                        listing,
                        self._space.roots,
                        checks_links=self._space.validate_refs,
                    )
                if not await store.finish(version, holder):
                    raise LeaseLost
            except (SpaceRefused, RepositoryRefused, BadSecrets, GitUnavailable) as error:
                KNOWLEDGE_BUILD_SECONDS.labels("failed").observe(time.monotonic() - began_s)
                self._commit = ""
                await store.finish(version, holder, error=error.detail)
                raise
        seconds = time.monotonic() - began_s
        KNOWLEDGE_BUILD_SECONDS.labels("built").observe(seconds)
        _log_built(version, report, listing, seconds)

    @asynccontextmanager
    async def _open_tree(self, commit: str) -> AsyncGenerator[Tree]:
        if self._tree is not None:
            yield self._tree
            return
        space, ports = self._space, self._ports
        async with open_git_tree(
            self._repository, commit, ports.git, name=space.name, roots=space.roots, limits=ports.limits
        ) as tree:
            yield tree

    def _report(self, error: EverturnError | TimeoutError) -> None:
        """Log a problem once, until it is another one or gone."""
        problem = (error.detail if isinstance(error, EverturnError) else "") or str(error) or "It took too long."
        if problem != self.problem:
            where = {"bundle_id": self.wanted.bundle_id, "space": self.wanted.name}
            _log.warning("Could not update a knowledge space", **where, error=problem)
        self.problem = problem


def _log_built(version: SpaceVersion, report: BuildReport, listing: Listing, seconds: float) -> None:
    where = {"bundle_id": version.bundle_id, "space": version.name}
    _log.info(
        "Built a knowledge space",
        **where,
        documents=report.documents,
        copied=report.copied,
        passages=report.passages,
        skipped=listing.skipped.count,
        seconds=round(seconds, 1),
    )
    KNOWLEDGE_DOCUMENTS.labels("copied").inc(report.copied)
    KNOWLEDGE_DOCUMENTS.labels("indexed").inc(report.documents - report.copied)
    KNOWLEDGE_DOCUMENTS.labels("skipped").inc(listing.skipped.count)
    if listing.skipped.count:
        first = listing.skipped.listed[:MAX_LOGGED]
        _log.warning("Files are not part of a knowledge space", **where, count=listing.skipped.count, first=first)
    if report.links:
        _log.warning("Documents have broken links", **where, count=report.links, first=report.broken[:MAX_LOGGED])
