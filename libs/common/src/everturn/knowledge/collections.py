"""Collections: documents that a person uploads once, and uses in any conversation.

The index of a collection is a space of the bundle COLLECTIONS, named by the collection's id. Its documents have the
paths `<id of the collection>/<name of the file>`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, CollectionId
from everturn.files.model import Upload

COLLECTIONS: Final = "/collections"
"""Where spaces name their bundle. No id of a bundle has a slash."""
MAX_COLLECTIONS: Final = 20
"""Limit for the collections that one person owns, and for those that one search reads."""
MAX_COLLECTION_DOCUMENTS: Final = 200
"""Limit for one collection."""
MAX_COLLECTION_BYTES: Final = 500_000_000
"""Limit for the files of one collection together."""


class CollectionScope(StrEnum):
    """Who may read a collection: its owner only, or everybody in the project. Only its owner may change it."""

    USER = "user"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class Collection:
    """`documents` and `waiting` count all of its documents, and those that can't be found yet. `error` says why its
    index could not be built."""

    id: CollectionId
    title: str
    scope: CollectionScope
    owner: str
    created_at: datetime
    documents: int = 0
    waiting: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class CollectionDocument:
    """A file of a collection. `error` says why its text can't be read; `indexed` whether a search finds it."""

    id: ArtifactId
    name: str
    mime: str
    size: int
    sha256: str
    object_key: str
    added_at: datetime
    indexed: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """What became of new documents, in their order; `unused` are object keys that no row names."""

    documents: tuple[CollectionDocument, ...]
    unused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CollectionJob:
    """A collection whose index has to be built, and its owner. `revision` is that of its documents when it was
    claimed."""

    id: CollectionId
    owner: Principal
    revision: int


class CollectionBook(Protocol):
    """What people do with collections. What the principal may not read counts as missing."""

    async def create(
        self, principal: Principal, collection_id: CollectionId, title: str, scope: CollectionScope
    ) -> Collection:
        """Raises Conflict if the principal owns MAX_COLLECTIONS, Unavailable."""
        ...

    async def load_all(self, principal: Principal) -> tuple[Collection, ...]:
        """Those that the principal owns, then the others of the project; each by title. Raises Unavailable."""
        ...

    async def check_owned(self, principal: Principal, collection_id: CollectionId) -> None:
        """Raises NotFound unless the principal owns it, Unavailable."""
        ...

    async def rename(self, principal: Principal, collection_id: CollectionId, title: str) -> Collection:
        """Raises NotFound unless the principal owns it, Unavailable."""
        ...

    async def delete(self, principal: Principal, collection_id: CollectionId) -> tuple[str, ...]:
        """Delete a collection with its documents; the keys of their objects. Raises NotFound unless the principal owns
        it, Unavailable."""
        ...

    async def add_documents(
        self, principal: Principal, collection_id: CollectionId, documents: Sequence[Upload]
    ) -> Added:
        """Add files whose objects are saved, or replace those of the same names; equal ones stay as they are.

        Raises NotFound unless the principal owns the collection, Conflict above a limit, Unavailable.
        """
        ...

    async def load_documents(self, principal: Principal, collection_id: CollectionId) -> tuple[CollectionDocument, ...]:
        """All documents, by name. Raises NotFound, Unavailable."""
        ...

    async def delete_document(self, principal: Principal, collection_id: CollectionId, document_id: ArtifactId) -> str:
        """The key of its object. Raises NotFound unless the principal owns it, Unavailable."""
        ...


class CollectionIndex(Protocol):
    """What workers do. All methods raise Unavailable."""

    async def try_claim(self, encoder: str) -> CollectionJob | None:
        """A collection whose index is not up to date."""
        ...

    async def load_job(self, job: CollectionJob) -> tuple[CollectionDocument, ...]:
        """The documents of a claimed collection; none if it was deleted."""
        ...

    async def prune(self, collection_id: CollectionId, signature: str) -> None:
        """Delete from one version of the space what was deleted from the collection meanwhile."""
        ...

    async def finish(
        self, job: CollectionJob, encoder: str, documents: Sequence[CollectionDocument], refused: Mapping[str, str]
    ) -> None:
        """The index has these documents, except those that were `refused`, with the reasons by name."""
        ...

    async def fail(self, job: CollectionJob, encoder: str, error: str) -> None:
        """The index can't be built from these documents; it is tried again when they change."""
        ...

    async def load_readable(self, principal: Principal) -> tuple[Collection, ...]:
        """The first MAX_COLLECTIONS that the principal may read and that have documents: its own first."""
        ...
