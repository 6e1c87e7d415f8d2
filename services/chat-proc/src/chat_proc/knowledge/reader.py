"""What an agent reads of its knowledge: a search, and documents by path."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import structlog

from everturn.core.errors import NotFound, Unavailable
from everturn.knowledge.store import Document, FoundPassage, KnowledgeQuery, KnowledgeStore, SpaceState, WantedSpace
from everturn.memory.embedder import Embedder, EmbedderUnavailable
from everturn.memory.search import QueryVector, embed_query

MAX_SUGGESTIONS = 3
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KnowledgeHits:
    """`words_only` says why the meaning of the question was not compared."""

    found: tuple[FoundPassage, ...]
    words_only: str = ""


async def embed_question(embedder: Embedder, query: str) -> tuple[QueryVector | None, str]:
    """The vector of a question, or None and the reason why only its words are compared."""
    try:
        return await embed_query(embedder, query), ""
    except EmbedderUnavailable as error:
        _log.warning("Searched knowledge by words only", error=str(error))
        return None, error.detail or str(error)


class KnowledgeReader:
    """The knowledge of one bundle. `wanted` gives its spaces as this worker wants them now, `problems` why it can't."""

    def __init__(
        self,
        store: KnowledgeStore,
        embedder: Embedder,
        *,
        wanted: Callable[[], Sequence[WantedSpace]],
        problems: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._wanted = wanted
        self._problems = problems

    async def search(self, query: str, limit: int) -> KnowledgeHits:
        """The best passages first. Raises Unavailable with a sentence for the model while no space serves."""
        vector, words_only = await embed_question(self._embedder, query)
        spaces = self._wanted()
        found = await self._store.search(spaces, KnowledgeQuery(query, vector, limit))
        if not found:
            await self._check_serves(spaces)
        return KnowledgeHits(found, words_only)

    async def load(self, path: str) -> Document:
        """Raises NotFound with a sentence for the model that names similar documents, Unavailable."""
        spaces = self._wanted()
        document = await self._store.try_load(spaces, path)
        if document is not None:
            return document
        await self._check_serves(spaces)
        paths = await self._store.load_paths(spaces)
        similar = await asyncio.to_thread(_find_similar, path, paths)
        hint = f" Similar documents: {', '.join(f'ks:{each}' for each in similar)}." if similar else ""
        raise NotFound(f"there is no such document.{hint} Find documents with react.search_knowledge")

    async def _check_serves(self, spaces: Sequence[WantedSpace]) -> None:
        """Raise Unavailable if no space serves yet."""
        status = await self._store.load_status(spaces)
        if any(each.serves for each in status):
            return
        if failed := [*(each.error for each in status if each.state is SpaceState.FAILED), *self._problems()]:
            raise Unavailable(f"The knowledge of this agent could not be built: {failed[0]}")
        documents = sum(each.documents for each in status)
        raise Unavailable(
            f"The knowledge of this agent is being built ({documents} documents so far). Try again in a minute"
        )


def _find_similar(path: str, paths: Sequence[str]) -> list[str]:
    """Documents with the same name, or with similar paths."""
    name = path.rpartition("/")[2].lower()
    same = [each for each in paths if each.rpartition("/")[2].lower() == name]
    below = [each for each in paths if each.startswith(f"{path.rstrip('/')}/")]
    close = get_close_matches(path, paths, n=MAX_SUGGESTIONS, cutoff=0.6)
    return list(dict.fromkeys([*same, *below, *close]))[:MAX_SUGGESTIONS]
