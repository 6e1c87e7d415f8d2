"""Knowledge in Postgres. No service may read the tables: every call is a function that takes the bundle and the names
of its spaces."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, LiteralString

from everturn.core.identity import Principal
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
from everturn.memory.postgres_search import build_vector_text
from everturn.memory.words import find_words
from everturn.postgres.pool import Connection, Database, Row, replace_nul

MAX_WORDS = 250
"""Limit for one passage."""
MAX_ANCHORS = 50
"""Limit for the words of headings and path of one passage."""
MAX_QUERY_WORDS = 16
WORD_WEIGHT = 1.0
ANCHOR_WEIGHT = 2.0
COPIED_PASSAGES = 2_000
"""Passages that one call copies or deletes, in about a second: a statement may take 8 s."""
MAX_ERROR_CHARS = 1_000

_WANT = "SELECT want_knowledge($1, $2, $3, $4, $5)"
_LEASE = "SELECT lease_knowledge($1, $2, $3, $4, $5)"
_SAVED = "SELECT path, digest FROM saved_knowledge($1, $2, $3)"
_COPY = "SELECT copy_knowledge($1, $2, $3, $4, $5, $6, $7, $8)"
_SAVE = "SELECT save_knowledge($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"
_FINISH = "SELECT finish_knowledge($1, $2, $3, $4, $5, $6)"
_DELETE = "SELECT delete_unwanted_knowledge($1, $2, $3)"
_SEARCH = "SELECT * FROM search_knowledge($1, $2, $3, $4, $5, $6, $7::text::vector, $8, $9)"
_LOAD = "SELECT * FROM load_knowledge($1, $2, $3, $4)"
_PATHS = "SELECT * FROM knowledge_paths($1, $2, $3)"
_STATUS = "SELECT * FROM knowledge_status($1, $2, $3)"


class PostgresKnowledgeStore:
    """Implements KnowledgeStore with the worker's role, as a principal may use it. Times are shorter in tests."""

    def __init__(
        self,
        database: Database,
        principal: Principal | None = None,
        *,
        lease_s: float = LEASE_S,
        retry_s: float = RETRY_S,
        kept_s: float = KEPT_S,
        forgotten_s: float = FORGOTTEN_S,
    ) -> None:
        self._database = database
        self._principal = principal
        self._lease_s = lease_s
        self._retry_s = retry_s
        self._kept_s = kept_s
        self._forgotten_s = forgotten_s

    def _connect(self) -> AbstractAsyncContextManager[Connection]:
        return self._database.connection() if self._principal is None else self._database.transaction(self._principal)

    async def want(self, version: SpaceVersion) -> SpaceState:
        return SpaceState(await self._call(_WANT, *_key(version), version.encoder, version.untrusted))

    async def try_lease(self, version: SpaceVersion, holder: str) -> bool:
        return await self._call(_LEASE, *_key(version), holder, self._lease_s)

    async def load_saved(self, version: SpaceVersion) -> Mapping[str, str]:
        async with self._connect() as connection:
            return {row["path"]: row["digest"] for row in await connection.fetch(_SAVED, *_key(version))}

    async def copy_documents(self, version: SpaceVersion, holder: str, wanted: Mapping[str, str]) -> int:
        paths, digests = list(wanted), list(wanted.values())
        return await self._call(_COPY, *_key(version), holder, self._lease_s, paths, digests, COPIED_PASSAGES)

    async def save_documents(self, version: SpaceVersion, holder: str, documents: Sequence[IndexedDocument]) -> bool:
        columns = await asyncio.to_thread(_build_columns, documents)
        return await self._call(_SAVE, *_key(version), holder, self._lease_s, *columns)

    async def finish(self, version: SpaceVersion, holder: str, *, error: str | None = None) -> bool:
        cut = None if error is None else replace_nul(error[:MAX_ERROR_CHARS])
        return await self._call(_FINISH, *_key(version), holder, cut, self._retry_s)

    async def delete_unwanted(self) -> int:
        return await self._call(_DELETE, self._kept_s, self._forgotten_s, COPIED_PASSAGES)

    async def search(self, spaces: Sequence[WantedSpace], query: KnowledgeQuery) -> tuple[FoundPassage, ...]:
        words = find_words(replace_nul(query.text), limit=MAX_QUERY_WORDS)
        lexemes = [f":{word}" for word in words] + [f"!{word}" for word in words]
        weights = [WORD_WEIGHT] * len(words) + [ANCHOR_WEIGHT] * len(words)
        encoder = query.vector and query.vector.encoder
        vector = query.vector and build_vector_text(query.vector.vector)
        limits = query.limit, PASSAGES_OF_DOCUMENT
        async with self._connect() as connection:
            rows = await connection.fetch(_SEARCH, *_spaces(spaces), lexemes, weights, encoder, vector, *limits)
        return tuple(FoundPassage(**row) for row in rows)

    async def try_load(self, spaces: Sequence[WantedSpace], path: str) -> Document | None:
        async with self._connect() as connection:
            row = await connection.fetchrow(_LOAD, *_spaces(spaces), replace_nul(path))
        return None if row is None else Document(**row)

    async def load_paths(self, spaces: Sequence[WantedSpace]) -> tuple[str, ...]:
        async with self._connect() as connection:
            return tuple(row["knowledge_paths"] for row in await connection.fetch(_PATHS, *_spaces(spaces)))

    async def load_status(self, spaces: Sequence[WantedSpace]) -> tuple[SpaceStatus, ...]:
        async with self._connect() as connection:
            return tuple(map(_read_status, await connection.fetch(_STATUS, *_spaces(spaces))))

    async def _call(self, query: LiteralString, *values: object) -> Any:
        async with self._connect() as connection:
            return await connection.fetchval(query, *values)


def _key(version: SpaceVersion) -> tuple[str, str, str]:
    return version.bundle_id, version.name, version.signature


def _spaces(spaces: Sequence[WantedSpace]) -> tuple[str, list[str], list[str | None]]:
    """The bundle, the names and the signatures. The spaces of one call belong to one bundle."""
    return spaces[0].bundle_id, [space.name for space in spaces], [space.signature for space in spaces]


def _build_columns(documents: Sequence[IndexedDocument]) -> tuple[list[Any], ...]:
    """The arguments of save_knowledge: about 0.7 ms for each passage."""
    headers = [each.document for each in documents]
    parts = [
        (place, each.document, passage, vector)
        for place, each in enumerate(documents, start=1)
        for passage, vector in each.passages
    ]
    passages = [passage for _, _, passage, _ in parts]
    return (
        [header.path for header in headers],
        [header.digest for header in headers],
        [replace_nul(header.title) for header in headers],
        [replace_nul(header.text) for header in headers],
        [place for place, _, _, _ in parts],
        [replace_nul(passage.heading) for passage in passages],
        [passage.start_line for passage in passages],
        [passage.end_line for passage in passages],
        [passage.start_char for passage in passages],
        [passage.chars for passage in passages],
        [" ".join(_build_lexemes(document, passage)) for _, document, passage, _ in parts],
        [build_vector_text(vector) for _, _, _, vector in parts],
    )


def _build_lexemes(document: Document, passage: Passage) -> list[str]:
    """The words of a passage, without the version that the database puts before them."""
    anchors = find_words(f"{passage.heading}\n{document.title}\n{document.path}", limit=MAX_ANCHORS)
    text = document.text[passage.start_char : passage.start_char + passage.chars]
    return [f":{word}" for word in find_words(text, limit=MAX_WORDS)] + [f"!{word}" for word in anchors]


def _read_status(row: Row) -> SpaceStatus:
    return SpaceStatus(row["name"], SpaceState(row["state"]), row["serves"], row["documents"], row["error"] or "")
