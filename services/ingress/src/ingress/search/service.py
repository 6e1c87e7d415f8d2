"""Search by meaning and words over the caller's conversations, in pages that don't shift.

A search gives no more than MAX_LIMIT hits in all its pages. Its cursor holds the moment of the first page, how many
hits went before and what was compared: the ranking is made again in the same way as of that moment, so what is said
meanwhile moves nothing.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import structlog
from fastapi import Request

from everturn.errors import NotFound
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, is_id
from everturn.model.memory.snippets import SnippetTarget
from everturn.ports.clock import Clock
from everturn.ports.conversations import Conversations
from everturn.ports.memory.embedder import Embedder, EmbedderUnavailable
from everturn.ports.memory.search import (
    ALL_TARGETS,
    MAX_LIMIT,
    FoundSnippet,
    QueryVector,
    Scope,
    SnippetFinder,
    SnippetQuery,
)
from everturn.wire.cursors import BadCursor, OldCursor, build_cursor, read_cursor, read_moment
from everturn.wire.times import iso
from ingress.search.schemas import Comparison, HitOut, SearchIn, SearchOut
from ingress.search.shares import SearchShares

CURSOR_LIFE = timedelta(hours=1)
CLOCK_LEEWAY = timedelta(seconds=60)
EMBED_TIMEOUT_S = 3.0
"""A search that has no vector of its query by then compares words only. The first search of a process loads the local
encoder, which takes half a second on an idle machine and several on a busy one."""
_CURSOR = "search"
_BY_MEANING, _BY_WORDS = "meaning", "words"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a page begins: as of when to rank, how many hits went before, and what the pages before compared."""

    at: datetime
    rank: int = 0
    by: str | None = None


class SearchService:
    """`embedder` is loaded when the first question comes; without it only words are compared."""

    def __init__(
        self,
        *,
        finder: SnippetFinder,
        conversations: Conversations,
        embedder: Embedder,
        clock: Clock,
        embed_timeout_s: float = EMBED_TIMEOUT_S,
    ) -> None:
        self._finder = finder
        self._conversations = conversations
        self._embedder = embedder
        self._clock = clock
        self._embed_timeout_s = embed_timeout_s
        self._shares = SearchShares()

    async def search(self, principal: Principal, wanted: SearchIn) -> SearchOut:
        """One page. Raises BadCursor, OldCursor, a 429 problem for a user who asks for too many at once, NotFound for a
        conversation that is not the caller's, and EmbedderUnavailable for a later page of a search by meaning."""
        start = self._read_start(wanted.cursor)
        async with self._shares.take(principal):
            return await self._find(principal, wanted, start)

    async def _find(self, principal: Principal, wanted: SearchIn, start: _Start) -> SearchOut:
        conversation_id = await self._check_conversation(principal, wanted.conversation_id)
        vector = await self._try_embed(wanted, start)
        query = SnippetQuery(
            scope=Scope(conversation_id),
            text=wanted.query,
            since=wanted.since or _FIRST,
            until=min(wanted.until or start.at, start.at),
            now=start.at,
            vector=vector,
            targets=frozenset(map(SnippetTarget, wanted.targets)) if wanted.targets else ALL_TARGETS,
            limit=MAX_LIMIT,
        )
        found = await self._finder.find_snippets(principal, query)
        page = found[start.rank : start.rank + wanted.limit]
        shown = start.rank + len(page)
        by = _BY_WORDS if vector is None else _BY_MEANING
        titles = await self._conversations.load_titles(principal, {hit.conversation_id for hit in page})
        return SearchOut(
            # What was erased since it was found is no hit any more.
            items=tuple(_build_hit(hit, titles[hit.conversation_id]) for hit in page if hit.conversation_id in titles),
            compared=self._tell_compared(vector),
            next_cursor=build_cursor(_CURSOR, start.at.isoformat(), str(shown), by) if shown < len(found) else None,
        )

    def _read_start(self, cursor: str | None) -> _Start:
        now = self._clock.now()
        if cursor is None:
            return _Start(now)
        moment, rank, by = read_cursor(cursor, _CURSOR, parts=3)
        started = read_moment(moment)
        if started > now + CLOCK_LEEWAY or not (rank.isascii() and rank.isdigit() and len(rank) < 4):
            raise BadCursor()
        if by not in (_BY_MEANING, _BY_WORDS):
            raise BadCursor()
        if started < now - CURSOR_LIFE:
            raise OldCursor()
        return _Start(started, int(rank), by)

    async def _check_conversation(self, principal: Principal, text: str | None) -> ConversationId | None:
        if text is None:
            return None
        if not is_id(text, "conv"):
            raise NotFound()
        return (await self._conversations.load(principal, ConversationId(text))).id

    async def _try_embed(self, wanted: SearchIn, start: _Start) -> QueryVector | None:
        """None where words only are compared: as wanted, like the pages before, or for want of the encoder."""
        if wanted.compare == "words only" or start.by == _BY_WORDS:
            return None
        try:
            async with asyncio.timeout(self._embed_timeout_s):
                (vector,) = await self._embedder.embed([wanted.query])
        except (EmbedderUnavailable, TimeoutError) as error:
            if start.by == _BY_MEANING:
                # Another ranking would repeat hits of the pages before, and leave out others.
                raise EmbedderUnavailable("The encoder does not respond.") from error
            reason = str(error) or f"no vector within {self._embed_timeout_s:g} s"
            _log.warning("a search compares words only", error=reason)
            return None
        return QueryVector(self._embedder.name, vector)

    def _tell_compared(self, vector: QueryVector | None) -> Comparison:
        return "words only" if vector is None or self._embedder.lexical_only else "meanings and words"


def search_service(request: Request) -> SearchService:
    """The service of this application."""
    return cast(SearchService, request.app.state.search)


def _build_hit(found: FoundSnippet, title: str) -> HitOut:
    return HitOut(
        conversation_id=found.conversation_id,
        title=title,
        turn_id=found.turn_id,
        target=found.target.value,
        ref=found.ref,
        snippet=found.text,
        ts=iso(found.ts),
        score=found.score,
    )
