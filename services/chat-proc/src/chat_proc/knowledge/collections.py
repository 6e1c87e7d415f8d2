"""Collections of people in a worker: builds their indexes, and reads them for a person."""

import asyncio
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import structlog

from chat_proc.knowledge.building import BuildReport, DocumentConverter, LeaseLost, SpaceBuilder, keep_lease
from chat_proc.knowledge.reader import KnowledgeHits, embed_question
from chat_proc.knowledge.spaces import BUILD_TIMEOUT_S, FORMAT
from chat_proc.knowledge.trees import FilesChanged, Listing, Skipped, SpaceRefused, TreeFile, TreeLimits
from everturn.core.errors import NotFound, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import is_id
from everturn.core.loops import guarded
from everturn.core.metrics import COLLECTIONS_BUILT
from everturn.files.objects import Objects
from everturn.knowledge.collections import (
    COLLECTIONS,
    Collection,
    CollectionDocument,
    CollectionIndex,
    CollectionJob,
)
from everturn.knowledge.store import (
    Document,
    KnowledgeQuery,
    KnowledgeStore,
    OpenStore,
    SpaceState,
    SpaceVersion,
    WantedSpace,
)
from everturn.memory.embedder import Embedder

_log = structlog.get_logger(__name__)

EVERY_S = 2.0
"""How soon a worker sees that a collection has changed."""
RETRY_S = 5.0
LIMITS = TreeLimits()
LOAD_TIMEOUT_S = 2.0
"""After this time a turn begins without the list of collections."""


class CollectionTree:
    """The files of a collection, in the object store."""

    def __init__(self, collection_id: str, documents: Sequence[CollectionDocument], objects: Objects) -> None:
        self._id = collection_id
        self._documents = {document.name: document for document in documents}
        self._objects = objects

    async def list_files(self) -> Listing:
        files, skipped = list[TreeFile](), Skipped()
        for each in self._documents.values():
            file = TreeFile(f"{self._id}/{each.name}", each.name, each.size, each.sha256)
            if file.converted_from or each.size <= LIMITS.text_bytes:
                files.append(file)
            else:
                skipped.add(each.name, f"it is a text of more than {LIMITS.text_bytes // 1024} KiB")
        return Listing(tuple(files), frozenset(self._documents), skipped)

    async def read(self, file: TreeFile) -> bytes:
        document = self._documents[file.origin]
        try:
            data = await self._objects.load(document.object_key, max_bytes=document.size)
        except NotFound as error:
            raise FilesChanged(f"The file {file.origin!a} was deleted.") from error
        charset = document.mime.partition("; charset=")[2]
        return await asyncio.to_thread(_recode, data, charset) if charset else data


def _recode(data: bytes, charset: str) -> bytes:
    """A text in UTF-8; its charset was found when it was uploaded."""
    return data.decode(charset, "replace").encode("utf-8", "replace")


class CollectionIndexer:
    """One of the worker's tasks: keeps the indexes of all collections up to date, one after the other.

    It yields to turns as SpaceBuilder does: after each batch it rests.
    """

    def __init__(
        self,
        index: CollectionIndex,
        open_store: OpenStore,
        embedder: Embedder,
        converter: DocumentConverter,
        objects: Objects,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._index = index
        self._open_store = open_store
        self._embedder = embedder
        self._converter = converter
        self._objects = objects
        self._every_s = every_s

    async def run(self) -> None:
        """Run until cancelled; another worker continues what is not finished."""
        while True:
            pause_s = self._every_s
            with guarded("collections") as guard:
                try:
                    pause_s = 0.0 if await self._build_next() else self._every_s
                except (Unavailable, TimeoutError, LeaseLost) as error:
                    _log.warning("Could not index a collection", error=str(error) or type(error).__name__)
                    pause_s = RETRY_S
            await asyncio.sleep(RETRY_S if guard.error is not None else pause_s)

    async def _build_next(self) -> bool:
        """Index the collection that has waited longest; returns False if none waits."""
        job = await self._index.try_claim(self._embedder.name)
        if job is None:
            while await self._open_store(None).delete_unwanted():
                """There may be more."""
            return False
        documents = await self._index.load_job(job)
        store = self._open_store(job.owner)
        version = await asyncio.to_thread(self._build_version, job, documents)
        began_s = time.monotonic()
        try:
            report = BuildReport()
            refused: dict[str, str] = {}
            if await store.want(version) is not SpaceState.READY:
                holder = secrets.token_hex(8)
                if not await store.try_lease(version, holder):
                    return True
                report, refused = await self._build(store, version, holder, job, documents)
        except SpaceRefused as error:
            await self._index.fail(job, self._embedder.name, error.detail)
            COLLECTIONS_BUILT.labels("failed").inc()
            _log.warning("A collection can't be indexed", collection_id=job.id, error=error.detail)
            return True
        await self._index.finish(job, self._embedder.name, documents, refused)
        COLLECTIONS_BUILT.labels("built").inc()
        _log.info(
            "Indexed a collection",
            collection_id=job.id,
            documents=report.documents,
            copied=report.copied,
            passages=report.passages,
            refused=len(refused),
            seconds=round(time.monotonic() - began_s, 1),
        )
        return True

    def _build_version(self, job: CollectionJob, documents: Sequence[CollectionDocument]) -> SpaceVersion:
        encoder = self._embedder.name
        marks = [FORMAT, encoder, [(document.name, document.sha256) for document in documents]]
        signature = sha256(json.dumps(marks).encode()).hexdigest()
        return SpaceVersion(COLLECTIONS, job.id, signature, encoder, untrusted=False)

    async def _build(
        self,
        store: KnowledgeStore,
        version: SpaceVersion,
        holder: str,
        job: CollectionJob,
        documents: Sequence[CollectionDocument],
    ) -> tuple[BuildReport, dict[str, str]]:
        """What was built, and the reasons by name for documents whose text can't be read."""
        tree = CollectionTree(job.id, documents, self._objects)
        async with keep_lease(store, version, holder), asyncio.timeout(BUILD_TIMEOUT_S):
            listing = await tree.list_files()
            builder = SpaceBuilder(store, self._embedder, self._converter)
            report = await builder.build(version, holder, tree, listing, {"": ""}, checks_links=False)
            await self._index.prune(job.id, version.signature)
            if not await store.finish(version, holder):
                raise LeaseLost
        return report, dict(listing.skipped.reasons)


@dataclass(frozen=True, slots=True)
class CollectionHits:
    """What a search found; `waiting` counts documents that could not be searched yet, in the searched collections."""

    hits: KnowledgeHits
    collections: tuple[Collection, ...]

    @property
    def waiting(self) -> int:
        return sum(each.waiting for each in self.collections)


class CollectionReader:
    """The collections that a person may read. Text in those of others is untrusted."""

    def __init__(self, index: CollectionIndex, open_store: OpenStore, embedder: Embedder) -> None:
        self._index = index
        self._open_store = open_store
        self._embedder = embedder

    async def load_list(self, principal: Principal) -> tuple[Collection, ...] | str:
        """The collections, or the reason as text if they can't be loaded: a turn begins without them."""
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                return await self._index.load_readable(principal)
        except (Unavailable, TimeoutError) as error:
            _log.warning("Could not load the collections", error=str(error))
            return "collections are not available now"

    async def search(self, principal: Principal, query: str, title: str, limit: int) -> CollectionHits:
        """The best passages of all collections, or of the one with a title. Raises NotFound with a sentence for the
        model if there is none, Unavailable."""
        readable = await self._index.load_readable(principal)
        chosen = tuple(each for each in readable if not title or each.title.casefold() == title.casefold())
        if not readable:
            raise NotFound("this person has no collections with documents")
        if not chosen:
            raise NotFound(f"there is no collection with this title. There are: {'; '.join(c.title for c in readable)}")
        vector, words_only = await embed_question(self._embedder, query)
        spaces = [WantedSpace(COLLECTIONS, each.id) for each in chosen]
        found = await self._open_store(principal).search(spaces, KnowledgeQuery(query, vector, limit))
        foreign = {each.id for each in chosen if each.owner != principal.user_id}
        marked = tuple(replace(each, untrusted=each.path.partition("/")[0] in foreign) for each in found)
        return CollectionHits(KnowledgeHits(marked, words_only), chosen)

    async def load(self, principal: Principal, path: str) -> Document:
        """The text of a document. Raises NotFound with a sentence for the model, Unavailable."""
        collection_id = path.partition("/")[0]
        readable = await self._index.load_readable(principal)
        owner = next((each.owner for each in readable if each.id == collection_id), "")
        document = await self._open_store(principal).try_load([WantedSpace(COLLECTIONS, collection_id)], path)
        if document is None:
            raise NotFound("there is no such document. Find documents with react.search_collections")
        return replace(document, untrusted=owner != principal.user_id)


def is_in_collection(path: str) -> bool:
    """Whether the path of a `ks:` ref is one of a document in a collection."""
    return is_id(path.partition("/")[0], "coll")
