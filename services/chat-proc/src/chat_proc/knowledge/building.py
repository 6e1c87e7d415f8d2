"""Builds a version of a space from its files: reads, converts, cuts into passages, encodes and saves, in batches.

Whatever is saved stays if the worker dies, and the next builder goes on with the rest.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from chat_proc.knowledge.passages import find_broken_links, find_folders, split_document
from chat_proc.knowledge.trees import Listing, SpaceRefused, Tree, TreeFile
from everturn.core.cancellation import end_tasks
from everturn.core.errors import Invalid, Unavailable
from everturn.core.loops import guarded
from everturn.knowledge.store import (
    LEASE_S,
    MAX_PASSAGES,
    MAX_TEXT_CHARS,
    Document,
    IndexedDocument,
    KnowledgeStore,
    Passage,
    SpaceVersion,
)
from everturn.memory.embedder import Embedder, Vector

BATCH_PASSAGES = 64
BATCH_CHARS = 1_000_000
EMBEDDED_CHARS = 8_000
"""Texts of one request to the encoder, about as many as it takes at once: a search waits only for one request."""
EMBED_TIMEOUT_S = 60.0
MAX_REST_S = 2.0
"""After each batch the builder rests as long as the batch took, but not longer: turns come first."""
MAX_LISTED_LINKS = 100


class LeaseLost(Exception):
    """Another builder has taken over."""


@asynccontextmanager
async def keep_lease(
    store: KnowledgeStore, version: SpaceVersion, holder: str, renew_s: float = LEASE_S / 4
) -> AsyncGenerator[None]:
    """Renew the lease during the context, also while files are fetched, or documents converted and encoded. Cancels
    the context and raises LeaseLost once another builder has the lease."""
    is_lost = False

    async def renew(scope: asyncio.Timeout) -> None:
        nonlocal is_lost
        while not is_lost:
            await asyncio.sleep(renew_s)
            with guarded("knowledge_lease", health=None), suppress(Unavailable):
                is_lost = not await store.save_documents(version, holder, ())
        scope.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as scope:
            renewing = asyncio.create_task(renew(scope))
            try:
                yield
            finally:
                await end_tasks(renewing)
    except TimeoutError as error:
        if is_lost:
            raise LeaseLost from error
        raise


class DocumentConverter(Protocol):
    """Converts files to text, in confined processes."""

    async def convert(self, mime: str, data: bytes) -> tuple[str, str]:
        """The title, which can be empty, and the text as Markdown. Raises Invalid if the file can't be read,
        Unavailable."""
        ...


@dataclass(slots=True)
class BuildReport:
    """`passages` are those that were encoded. `broken` names the first broken links; `links` counts all."""

    documents: int = 0
    copied: int = 0
    passages: int = 0
    links: int = 0
    broken: list[str] = field(default_factory=list[str])


class SpaceBuilder:
    """Builds versions of spaces, one at a time each."""

    def __init__(self, store: KnowledgeStore, embedder: Embedder, converter: DocumentConverter) -> None:
        self._store = store
        self._embedder = embedder
        self._converter = converter

    async def build(
        self,
        version: SpaceVersion,
        holder: str,
        tree: Tree,
        listing: Listing,
        roots: Mapping[str, str],
        *,
        checks_links: bool,
    ) -> BuildReport:
        """Save all documents of the listing, which gets the files that are skipped. Raises LeaseLost, SpaceRefused,
        FilesChanged, Unavailable."""
        report = BuildReport(documents=len(listing.files))
        wanted = {file.path: file.digest for file in listing.files}
        while copied := await self._store.copy_documents(version, holder, wanted):
            report.copied += copied
        saved = await self._store.load_saved(version)
        targets = listing.names | find_folders(listing.names) if checks_links else frozenset[str]()
        batch = _Batch()
        for file in listing.files:
            is_saved = saved.get(file.path) == file.digest
            if is_saved and (file.converted_from or not checks_links):
                continue
            read = await self._read(tree, file, listing)
            if read is None:
                report.documents -= 1
                continue
            document, passages, broken = await asyncio.to_thread(_cut, file, *read, targets, roots)
            report.links += len(broken)
            report.broken += broken[: MAX_LISTED_LINKS - len(report.broken)]
            if is_saved:
                continue
            report.passages += len(passages)
            if report.passages > MAX_PASSAGES:
                raise SpaceRefused(
                    f"The documents have more than {MAX_PASSAGES:,} passages. Leave some out, or divide them."
                )
            batch.add(document, passages)
            if batch.is_full:
                await self._save(version, holder, batch)
                batch = _Batch()
        await self._save(version, holder, batch)
        return report

    async def _read(self, tree: Tree, file: TreeFile, listing: Listing) -> tuple[str, str] | None:
        """The title, if it is known, and the text; None for a file that is skipped."""
        data = await tree.read(file)
        if file.converted_from:
            try:
                title, text = await self._converter.convert(file.converted_from, data)
            except Invalid as invalid:
                listing.skipped.add(file.origin, invalid.detail)
                return None
            return title, text[:MAX_TEXT_CHARS]
        if b"\0" in data:
            listing.skipped.add(file.origin, "it is not text")
            return None
        return "", (await asyncio.to_thread(data.decode, "utf-8-sig", "replace"))[:MAX_TEXT_CHARS]

    async def _save(self, version: SpaceVersion, holder: str, batch: "_Batch") -> None:
        """Encode and save a batch."""
        began_s = time.monotonic()
        texts = [
            f"{passage.heading}\n{document.text[passage.start_char : passage.start_char + passage.chars]}"
            for document, passages in batch.documents
            for passage in passages
        ]
        vectors: list[Vector] = []
        for part in _divide(texts):
            async with asyncio.timeout(EMBED_TIMEOUT_S):
                vectors += await self._embedder.embed(part)
        left = iter(vectors)
        indexed = [
            IndexedDocument(document, [(passage, next(left)) for passage in passages])
            for document, passages in batch.documents
        ]
        if not await self._store.save_documents(version, holder, indexed):
            raise LeaseLost
        await asyncio.sleep(min(MAX_REST_S, time.monotonic() - began_s))


class _Batch:
    """Documents that are encoded and saved together."""

    def __init__(self) -> None:
        self.documents: list[tuple[Document, Sequence[Passage]]] = []
        self._passages = 0
        self._chars = 0

    @property
    def is_full(self) -> bool:
        return self._passages >= BATCH_PASSAGES or self._chars >= BATCH_CHARS

    def add(self, document: Document, passages: Sequence[Passage]) -> None:
        self.documents.append((document, passages))
        self._passages += len(passages)
        self._chars += len(document.text)


def _cut(
    file: TreeFile, title: str, text: str, targets: frozenset[str] | set[str], roots: Mapping[str, str]
) -> tuple[Document, Sequence[Passage], list[str]]:
    found, passages = split_document(file.origin, text)
    broken = list(find_broken_links(file.origin, text, targets, roots)) if targets else []
    return Document(file.path, title or found, text, file.digest), passages, broken


def _divide(texts: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = []
    chars = EMBEDDED_CHARS
    for text in texts:
        if chars >= EMBEDDED_CHARS:
            parts.append([])
            chars = 0
        parts[-1].append(text)
        chars += len(text)
    return parts
