"""Search by meaning and words over the caller's conversations, in pages that don't shift.

A search gives no more than MAX_LIMIT hits in all its pages. Its cursor holds the moment of the first page and how many
hits went before: the ranking is made again as of that moment, so what is said meanwhile moves nothing.
"""

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
_CURSOR = "search"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

_log = structlog.get_logger(__name__)


class SearchService:
    """`embedder` is loaded when the first question comes; without it only words are compared."""

    def __init__(
        self, *, finder: SnippetFinder, conversations: Conversations, embedder: Embedder, clock: Clock
    ) -> None:
        self._finder = finder
        self._conversations = conversations
        self._embedder = embedder
        self._clock = clock
        self._shares = SearchShares()

    async def search(self, principal: Principal, wanted: SearchIn) -> SearchOut:
        """One page. Raises BadCursor, OldCursor, a 429 problem for a user who asks for too many at once, and NotFound
        for a conversation that is not the caller's."""
        started, rank = self._read_start(wanted.cursor)
        async with self._shares.take(principal):
            return await self._find(principal, wanted, started=started, rank=rank)

    async def _find(self, principal: Principal, wanted: SearchIn, *, started: datetime, rank: int) -> SearchOut:
        conversation_id = await self._check_conversation(principal, wanted.conversation_id)
        vector = None if wanted.compare == "words only" else await self._embed(wanted.query)
        query = SnippetQuery(
            scope=Scope(conversation_id),
            text=wanted.query,
            since=wanted.since or _FIRST,
            until=min(wanted.until or started, started),
            now=started,
            vector=vector,
            targets=frozenset(map(SnippetTarget, wanted.targets)) if wanted.targets else ALL_TARGETS,
            limit=MAX_LIMIT,
        )
        found = await self._finder.find_snippets(principal, query)
        page = found[rank : rank + wanted.limit]
        more = rank + len(page) < len(found)
        titles = await self._conversations.load_titles(principal, {hit.conversation_id for hit in page})
        return SearchOut(
            # What was erased since it was found is no hit any more.
            items=tuple(_build_hit(hit, titles[hit.conversation_id]) for hit in page if hit.conversation_id in titles),
            compared=self._tell_compared(vector),
            next_cursor=build_cursor(_CURSOR, started.isoformat(), str(rank + len(page))) if more else None,
        )

    def _read_start(self, cursor: str | None) -> tuple[datetime, int]:
        """As of when to rank, and how many hits went before."""
        now = self._clock.now()
        if cursor is None:
            return now, 0
        moment, rank = read_cursor(cursor, _CURSOR, parts=2)
        started = read_moment(moment)
        if started > now + CLOCK_LEEWAY or not (rank.isascii() and rank.isdigit() and len(rank) < 4):
            raise BadCursor()
        if started < now - CURSOR_LIFE:
            raise OldCursor()
        return started, int(rank)

    async def _check_conversation(self, principal: Principal, text: str | None) -> ConversationId | None:
        if text is None:
            return None
        if not is_id(text, "conv"):
            raise NotFound()
        return (await self._conversations.load(principal, ConversationId(text))).id

    async def _embed(self, text: str) -> QueryVector | None:
        try:
            (vector,) = await self._embedder.embed([text])
        except EmbedderUnavailable as error:
            _log.warning("a search compares words only", error=str(error))
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
