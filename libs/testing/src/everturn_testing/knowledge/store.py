"""Knowledge in memory: every passage is compared with every question."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from everturn.core.clock import Clock
from everturn.knowledge.store import (
    FORGOTTEN_S,
    KEPT_S,
    LEASE_S,
    PASSAGES_OF_DOCUMENT,
    RETRY_S,
    Document,
    FoundPassage,
    IndexedDocument,
    KnowledgeQuery,
    Passage,
    SpaceState,
    SpaceStatus,
    SpaceVersion,
    WantedSpace,
)
from everturn.memory.words import find_words

RANK_K = 60
COPIED = 200


@dataclass(slots=True)
class VersionRow:
    """One version; times by the monotonic clock."""

    version: SpaceVersion
    wanted_at_s: float
    state: SpaceState = SpaceState.BUILDING
    error: str = ""
    documents: dict[str, IndexedDocument] = field(default_factory=dict[str, IndexedDocument])
    holder: str | None = None
    lease_until_s: float = 0.0
    tries: int = 0
    retry_at_s: float = 0.0
    built: int = 0


class MemoryKnowledgeStore:
    """Implements KnowledgeStore."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rows: dict[tuple[str, str, str], VersionRow] = {}
        self._builds = 0

    async def want(self, version: SpaceVersion) -> SpaceState:
        row = self.rows.setdefault(_key(version), VersionRow(version, 0.0))
        row.wanted_at_s = self._clock.monotonic()
        return row.state

    async def try_lease(self, version: SpaceVersion, holder: str) -> bool:
        row, now_s = self.rows[_key(version)], self._clock.monotonic()
        if row.state is SpaceState.READY or row.retry_at_s > now_s:
            return False
        if row.holder not in (None, holder) and row.lease_until_s > now_s:
            return False
        row.holder, row.lease_until_s, row.state = holder, now_s + LEASE_S, SpaceState.BUILDING
        return True

    async def load_saved(self, version: SpaceVersion) -> Mapping[str, str]:
        return {path: each.document.digest for path, each in self.rows[_key(version)].documents.items()}

    async def copy_documents(self, version: SpaceVersion, holder: str, wanted: Mapping[str, str]) -> int:
        row = self._leased(version, holder)
        served = self._served([WantedSpace(version.bundle_id, version.name)])
        if row is None or not served or served[0].version.encoder != version.encoder:
            return 0
        found = {
            path: each
            for path, each in served[0].documents.items()
            if wanted.get(path) == each.document.digest and path not in row.documents
        }
        row.documents.update(list(found.items())[:COPIED])
        return min(len(found), COPIED)

    async def save_documents(self, version: SpaceVersion, holder: str, documents: Sequence[IndexedDocument]) -> bool:
        row = self._leased(version, holder)
        if row is None:
            return False
        for each in documents:
            row.documents.setdefault(each.document.path, each)
        return True

    async def finish(self, version: SpaceVersion, holder: str, *, error: str | None = None) -> bool:
        row = self._leased(version, holder)
        if row is None:
            return False
        row.holder, row.error = None, error or ""
        if error is None:
            self._builds += 1
            row.state, row.built = SpaceState.READY, self._builds
            return True
        row.state = SpaceState.FAILED
        row.retry_at_s = self._clock.monotonic() + min(3600, RETRY_S * 2**row.tries)
        row.tries += 1
        return True

    async def delete_unwanted(self) -> int:
        now_s = self._clock.monotonic()
        unwanted = [
            row
            for row in self.rows.values()
            if row.wanted_at_s < now_s - FORGOTTEN_S
            or (row.wanted_at_s < now_s - KEPT_S and any(_replaces(other, row) for other in self.rows.values()))
        ]
        for row in unwanted:
            del self.rows[_key(row.version)]
        return sum(len(row.documents) for row in unwanted)

    async def search(self, spaces: Sequence[WantedSpace], query: KnowledgeQuery) -> tuple[FoundPassage, ...]:
        served = self._served(spaces)
        parts = [
            (row, each.document, passage, vector)
            for row in served
            for each in row.documents.values()
            for passage, vector in each.passages
        ]
        fits = dict[int, float]()
        by_words = _rank_by_words([(document, passage) for _, document, passage, _ in parts], query.text)
        orders = [by_words]
        if query.vector is not None:
            target = query.vector.vector
            near = [
                (index, sum(map(math.prod, zip(vector, target, strict=True))))
                for index, (row, _, _, vector) in enumerate(parts)
                if row.version.encoder == query.vector.encoder
            ]
            orders.append([index for index, _ in sorted(near, key=lambda each: -each[1])])
        for order in orders:
            for place, index in enumerate(order, start=1):
                fits[index] = fits.get(index, 0.0) + 1 / (RANK_K + place)
        found: list[FoundPassage] = []
        for index in sorted(fits, key=lambda each: (-fits[each], each)):
            row, document, passage, _ = parts[index]
            if sum(hit.path == document.path for hit in found) < PASSAGES_OF_DOCUMENT:
                found.append(_build_found(row, document, passage, fits[index]))
        return tuple(found[: query.limit])

    async def try_load(self, spaces: Sequence[WantedSpace], path: str) -> Document | None:
        for row in self._served(spaces):
            if (each := row.documents.get(path)) is not None:
                return replace(each.document, untrusted=row.version.untrusted)
        return None

    async def load_paths(self, spaces: Sequence[WantedSpace]) -> tuple[str, ...]:
        return tuple(sorted(path for row in self._served(spaces) for path in row.documents))

    async def load_status(self, spaces: Sequence[WantedSpace]) -> tuple[SpaceStatus, ...]:
        found: list[SpaceStatus] = []
        for space in spaces:
            rows = self._rows_of(space)
            if rows:
                row = max(rows, key=lambda each: (each.version.signature == space.signature, each.wanted_at_s))
                serves = any(each.state is SpaceState.READY for each in rows)
                found.append(SpaceStatus(space.name, row.state, serves, len(row.documents), row.error))
        return tuple(found)

    def _rows_of(self, space: WantedSpace) -> list[VersionRow]:
        return [row for key, row in self.rows.items() if key[:2] == (space.bundle_id, space.name)]

    def _served(self, spaces: Sequence[WantedSpace]) -> list[VersionRow]:
        served: list[VersionRow] = []
        for space in spaces:
            whole = [row for row in self._rows_of(space) if row.state is SpaceState.READY]
            if whole:
                served.append(max(whole, key=lambda row: (row.version.signature == space.signature, row.built)))
        return served

    def _leased(self, version: SpaceVersion, holder: str) -> VersionRow | None:
        row, now_s = self.rows.get(_key(version)), self._clock.monotonic()
        if row is None or row.state is SpaceState.READY or row.holder != holder or row.lease_until_s <= now_s:
            return None
        row.lease_until_s, row.wanted_at_s = now_s + LEASE_S, now_s
        return row


def _key(version: SpaceVersion) -> tuple[str, str, str]:
    return version.bundle_id, version.name, version.signature


def _replaces(other: VersionRow, row: VersionRow) -> bool:
    return (
        other is not row
        and _key(other.version)[:2] == _key(row.version)[:2]
        and other.state is SpaceState.READY
        and other.wanted_at_s > row.wanted_at_s
    )


def _rank_by_words(parts: Sequence[tuple[Document, Passage]], query: str) -> list[int]:
    wanted = set(find_words(query, limit=16))
    scored: list[tuple[float, int]] = []
    for index, (document, passage) in enumerate(parts):
        text = document.text[passage.start_char : passage.start_char + passage.chars]
        anchors = f"{passage.heading}\n{document.title}\n{document.path}"
        score = len(wanted.intersection(find_words(text, limit=250)))
        score += 2 * len(wanted.intersection(find_words(anchors, limit=50)))
        if score:
            scored.append((-score, index))
    return [index for _, index in sorted(scored)]


def _build_found(row: VersionRow, document: Document, passage: Passage, score: float) -> FoundPassage:
    return FoundPassage(
        document.path,
        document.title,
        passage.heading,
        passage.start_line,
        passage.end_line,
        document.text[passage.start_char : passage.start_char + passage.chars],
        score,
        row.version.untrusted,
    )
