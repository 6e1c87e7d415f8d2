"""The knowledge of agents: documents and their passages, built version by version, searched by words and by meaning.

A **space** belongs to a bundle. Workers ask for the version of a space that their files have, by its signature; one of
them builds it, in batches that the next worker can continue. Until it is whole, the newest whole version serves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from everturn.core.identity import Principal
from everturn.core.open_values import OpenEnum
from everturn.memory.embedder import Vector
from everturn.memory.search import QueryVector

MAX_SPACES = 8
"""Limit for one bundle."""
MAX_DOCUMENTS = 5_000
"""Limit for one space."""
MAX_PASSAGES = 50_000
"""Limit for one space. A search compares its vector with every passage, which takes about 1 ms for 1,000."""
MAX_TEXT_CHARS = 1024 * 1024
"""Limit for one document."""
MAX_PASSAGE_CHARS = 1_000
"""About 250 tokens, the input limit of the local encoder."""
MAX_RESULTS = 20
PASSAGES_OF_DOCUMENT = 3
"""Limit for one search: a long document must not hide the others."""

LEASE_S = 60.0
"""How long a builder may go without a sign of life; then another worker continues its work."""
KEPT_S = 900
"""How long a version that no worker wants any more is kept, if a newer one serves."""
FORGOTTEN_S = 7 * 24 * 3600
"""How long the newest version is kept if no worker wants any of its space."""
RETRY_S = 60
"""The wait after the first failed build of a version; it doubles with every further one, up to an hour."""


class SpaceState(OpenEnum):
    """Of one version."""

    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"

    @classmethod
    def fallback(cls) -> "SpaceState":
        """An unknown state does not serve yet."""
        return cls.BUILDING


@dataclass(frozen=True, slots=True)
class WantedSpace:
    """The version of a space that a worker wants; without a signature, which it may not know yet, the newest.

    `name` is empty for the space without a name.
    """

    bundle_id: str
    name: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class SpaceVersion:
    """A version to build. `untrusted` marks text of third parties; `encoder` is that of its vectors."""

    bundle_id: str
    name: str
    signature: str
    encoder: str
    untrusted: bool


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document: its lines from 1 on, and its place in the text, from 0 on. `heading` names the headings
    above it, outermost first."""

    heading: str
    start_line: int
    end_line: int
    start_char: int
    chars: int


@dataclass(frozen=True, slots=True)
class Document:
    """`path` is what a `ks:` ref names. `digest` identifies the file from which the text was read."""

    path: str
    title: str
    text: str
    digest: str
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document with its passages and their vectors."""

    document: Document
    passages: Sequence[tuple[Passage, Vector]]


@dataclass(frozen=True, slots=True)
class KnowledgeQuery:
    """Without a vector only words count."""

    text: str
    vector: QueryVector | None = None
    limit: int = 5


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """`score` orders the results of one search only."""

    path: str
    title: str
    heading: str
    start_line: int
    end_line: int
    text: str
    score: float
    untrusted: bool


@dataclass(frozen=True, slots=True)
class SpaceStatus:
    """The wanted version of a space and whether any version of it serves. `documents` are saved so far."""

    name: str
    state: SpaceState
    serves: bool
    documents: int = 0
    error: str = ""


class KnowledgeStore(Protocol):
    """All methods raise Unavailable. A `holder` names one attempt to build a version."""

    async def want(self, version: SpaceVersion) -> SpaceState:
        """Record that a worker wants this version, so that it is kept. Call it every few minutes."""
        ...

    async def try_lease(self, version: SpaceVersion, holder: str) -> bool:
        """Start or continue the build for LEASE_S. False if another holder builds it, it is whole, or it failed a
        moment ago."""
        ...

    async def load_saved(self, version: SpaceVersion) -> Mapping[str, str]:
        """The digests of the saved documents by path."""
        ...

    async def copy_documents(self, version: SpaceVersion, holder: str, wanted: Mapping[str, str]) -> int:
        """Copy some of the documents with these digests by path from the version that serves, instead of reading and
        encoding them again. How many: 0 when there are no more, or the holder has lost the lease."""
        ...

    async def save_documents(self, version: SpaceVersion, holder: str, documents: Sequence[IndexedDocument]) -> bool:
        """Add documents, or none, and renew the lease. False if the holder has lost it."""
        ...

    async def finish(self, version: SpaceVersion, holder: str, *, error: str | None = None) -> bool:
        """The version is whole and serves from now on, or can't be built because of `error`, a sentence. False if the
        holder has lost the lease."""
        ...

    async def delete_unwanted(self) -> int:
        """Delete some documents of versions that nobody wants; how many, 0 when there are no more."""
        ...

    async def search(self, spaces: Sequence[WantedSpace], query: KnowledgeQuery) -> tuple[FoundPassage, ...]:
        """The best first."""
        ...

    async def try_load(self, spaces: Sequence[WantedSpace], path: str) -> Document | None:
        """The document with this path."""
        ...

    async def load_paths(self, spaces: Sequence[WantedSpace]) -> tuple[str, ...]:
        """The paths of all documents, in order; at most MAX_SPACES * MAX_DOCUMENTS."""
        ...

    async def load_status(self, spaces: Sequence[WantedSpace]) -> tuple[SpaceStatus, ...]:
        """The status of each space that any worker has wanted before."""
        ...


OpenStore = Callable[[Principal | None], KnowledgeStore]
"""The store as a principal may use it, which matters for collections only: others belong to nobody."""
