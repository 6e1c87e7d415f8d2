"""Searching the caller's conversations."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self, cast

import structlog
from fastapi import APIRouter, Depends, Request
from pydantic import Field, StringConstraints, model_validator

from everturn.conversations.model import Conversations
from everturn.core.clock import Clock, iso
from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, is_id
from everturn.core.paging import BadCursor, OldCursor, build_cursor, read_cursor, read_moment
from everturn.memory.embedder import Embedder, EmbedderUnavailable
from everturn.memory.search import (
    ALL_TARGETS,
    EMBED_TIMEOUT_S,
    MAX_LIMIT,
    FoundSnippet,
    MemorySearch,
    QueryVector,
    Scope,
    SnippetQuery,
    SnippetTarget,
    embed_query,
)
from ingress.admission.route import AdmittedRoute
from ingress.admission.slots import OpenSlots
from ingress.auth.gate import Me
from ingress.fields import NOT_BLANK, Cursor, JsonBody, Moment
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

MAX_QUERY_CHARS = 2_000
Target = Literal["user", "assistant", "summary", "notes", "attachment"]
Mode = Literal["hybrid", "lexical"]

AT_ONCE = 2
"""Searches of one user that run at once; this is the user's share of the encoder's queue."""
WAITING = 8
"""Searches of one user that wait for a slot."""
OPEN = 64
"""Searches of all users that run or wait; each waits for the encoder at most `EMBED_TIMEOUT_S`."""

CURSOR_LIFE = timedelta(hours=1)
CLOCK_LEEWAY = timedelta(seconds=60)
_CURSOR = "search"
_BY_MEANING, _BY_WORDS = "meaning", "words"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

router = APIRouter(prefix="/conversations/{tenant}/{project}", route_class=AdmittedRoute, tags=["search"])


class SearchIn(JsonBody):
    """The query. `from` is included, `to` is not; without `targets` all kinds of texts are searched."""

    query: Annotated[str, StringConstraints(max_length=MAX_QUERY_CHARS, pattern=NOT_BLANK)] = Field(
        examples=["which region sold most"]
    )
    """What to look for."""
    limit: int = Field(default=10, ge=1, le=MAX_LIMIT, description="Maximum number of hits on a page.")
    conversation_id: str | None = Field(default=None, max_length=80, description="Only in this conversation.")
    targets: tuple[Target, ...] | None = Field(default=None, min_length=1, max_length=5, strict=False)
    """The kinds of texts to search; all if absent."""
    mode: Mode = Field(
        default="hybrid",
        description=(
            "With `lexical`, a hit contains at least one of the words; with `hybrid`, which also compares meanings, "
            "any text can be a hit."
        ),
    )
    since: Moment | None = Field(default=None, alias="from", strict=False)
    """The beginning of the period, inclusive, in ISO 8601 with a time zone."""
    until: Moment | None = Field(default=None, alias="to", strict=False)
    """The end of the period, exclusive, in ISO 8601 with a time zone."""
    cursor: Cursor | None = Field(
        default=None, description="The `next_cursor` of the previous page; valid for an hour."
    )

    @model_validator(mode="after")
    def check_period(self) -> Self:
        """A period has a beginning before its end."""
        if self.since and self.until and self.since >= self.until:
            raise ValueError("from must be before to")
        return self


class HitOut(JsonBody):
    """One hit: `ref` names the full text of the snippet, `title` is its conversation's current title. `score` only
    orders the hits of one search."""

    conversation_id: str
    title: str
    """The current title of its conversation."""
    turn_id: str
    target: Target
    """The kind of text."""
    ref: str
    """The ref of the text in which it was found."""
    snippet: str
    """The part of the text that was found."""
    ts: str
    score: float
    """Orders the hits of one search and has no other meaning."""


class SearchOut(JsonBody):
    """Hits, best first. `mode` is `lexical` where only words were compared, as requested or because the encoder did
    not respond within 3 s, for example while it loads."""

    items: tuple[HitOut, ...]
    mode: Mode = Field(description="How texts were compared with the query: `hybrid` is by meaning and by words.")
    next_cursor: str | None


class _Share:
    """The slots of one user, kept while one of them is in use."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.inside = 0


class SearchShares:
    """Limits the use of the encoder per user and in total, so that one user's searches do not delay those of others,
    and no search waits for long. The local encoder processes one text after another, and a long query takes it a fifth
    of a second.

    Gives each user slots of its own; only this object changes the counts.

    Not WorkSlots: it answers 503 when its queue is full, while a user's own searches above the share get 429, and all
    guests together have a share of `OPEN`. The encoder, which has one queue, limits what runs at once.
    """

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._open = OpenSlots(max_total=OPEN, max_per_user=AT_ONCE + WAITING, singular="search", plural="searches")

    @asynccontextmanager
    async def acquire(self, principal: Principal) -> AsyncGenerator[None]:
        """Hold a slot while the block runs. Raises a 429 problem when too many searches of this user wait, 503 when too
        many of all users do."""
        person = principal.limited_as
        with self._open.holding(principal):
            share = self._shares.setdefault(person, _Share())
            share.inside += 1
            try:
                async with share.free:
                    yield
            finally:
                share.inside -= 1
                if not share.inside:
                    del self._shares[person]


@dataclass(frozen=True, slots=True)
class _Start:
    """The start of a page: the time to rank as of, the number of earlier hits, and what earlier pages compared."""

    at: datetime
    rank: int = 0
    by: str | None = None


class SearchService:
    """Search by meaning and words over the caller's conversations, in pages that don't shift. All pages together have
    at most MAX_LIMIT hits. A cursor holds the time of the first page, the number of earlier hits and what was compared.
    Each page repeats the same ranking as of that time, so later texts don't move hits.

    `embedder` is loaded at the first search; without it only words are compared.
    """

    def __init__(
        self,
        *,
        finder: MemorySearch,
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
        """One page. Raises BadCursor, OldCursor, a 429 problem for too many searches of one user, NotFound for a
        conversation of another owner, and EmbedderUnavailable for a later page of a search by meaning."""
        start = self._read_start(wanted.cursor)
        async with self._shares.acquire(principal):
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
            # Leave out hits whose conversation was erased meanwhile.
            items=tuple(_build_hit(hit, titles[hit.conversation_id]) for hit in page if hit.conversation_id in titles),
            mode=self._choose_mode(vector),
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
        """None when only words are compared: as requested, like earlier pages, or because the encoder is
        unavailable."""
        if wanted.mode == "lexical" or start.by == _BY_WORDS:
            return None
        try:
            return await embed_query(self._embedder, wanted.query, timeout_s=self._embed_timeout_s)
        except EmbedderUnavailable as error:
            if start.by == _BY_MEANING:
                # Another ranking would repeat hits of earlier pages and miss others.
                raise EmbedderUnavailable("The encoder does not respond.") from error
            _log.warning("Compared only words because the encoder failed", error=str(error))
            return None

    def _choose_mode(self, vector: QueryVector | None) -> Mode:
        return "lexical" if vector is None or self._embedder.lexical_only else "hybrid"


async def search_service(request: Request) -> SearchService:
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


@router.post("/search", responses=problems(408, 410, 413, 415))
async def search_conversations(
    body: SearchIn, me: Me, service: Annotated[SearchService, Depends(search_service)]
) -> SearchOut:
    """Search the texts of the caller's ended turns, by meaning and by words, best hits first."""
    return await service.search(me, body)
