"""Memory search and its index in memory: every snippet is compared with every question, which is exact."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from everturn.core.errors import NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.memory.search import (
    MAX_CATALOG_CHARS,
    TARGET_OF,
    CatalogPage,
    CatalogQuery,
    CatalogText,
    CatalogTurn,
    EmbeddedSnippet,
    FoundSnippet,
    IndexJob,
    QueryVector,
    Scope,
    Snippet,
    SnippetQuery,
    choose_texts,
    describe_attachment,
)
from everturn.memory.words import find_words
from everturn.timeline.blocks import AttachmentBody, Block
from everturn_testing.in_memory_platform import MemoryPlatform, TurnRow, same_owner

RANK_K = 60
COMMON_ROWS = 50
COMMON_WEIGHT = 0.01
HALF_LIFE_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class SnippetRow:
    """One stored snippet."""

    principal: Principal
    job: IndexJob
    encoder: str
    embedded: EmbeddedSnippet

    @property
    def snippet(self) -> Snippet:
        return self.embedded.snippet

    @property
    def ts(self) -> datetime:
        return datetime.fromisoformat(self.snippet.ts)


class MemorySnippets:
    """Implements MemorySearch and SnippetIndex over the platform's turns."""

    def __init__(self, platform: MemoryPlatform) -> None:
        self._platform = platform
        self._rows: list[SnippetRow] = []
        self._indexed: set[TurnId] = set()
        self._tries: dict[TurnId, int] = {}
        self._due: dict[TurnId, datetime] = {}

    async def claim_turns(self, limit: int) -> tuple[IndexJob, ...]:
        now = self._platform.clock.now()
        waiting = [row for row in self._platform.turns.values() if self._waits(row, now)][:limit]
        return tuple(self._take(row, now) for row in waiting)

    async def load_texts(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId
    ) -> tuple[Block, ...]:
        try:
            row = self._platform.conversation(principal, conversation_id)
        except NotFound:
            return ()
        return tuple(block for block in row.blocks if block.turn_id == turn_id and block.type in TARGET_OF)

    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        row = self._platform.turns.get(job.turn_id)
        if row is None or not same_owner(row.principal, principal):
            return False
        self._rows = [kept for kept in self._rows if kept.job.turn_id != job.turn_id]
        self._rows += [SnippetRow(principal, job, encoder, embedded) for embedded in snippets]
        self._indexed.add(job.turn_id)
        return True

    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        rows = [row for row in self._rows if same_owner(row.principal, principal) and _fits(row, query)]
        placed = _fit_words(rows, query.text)
        if query.vector is not None:
            fits = placed
            by_words = sorted(fits, key=lambda index: (-fits[index], -index))
            placed = dict[int, float]()
            for order in (_order_by_vector(rows, query.vector), by_words):
                for place, index in enumerate(order, start=1):
                    placed[index] = placed.get(index, 0.0) + 1 / (RANK_K + place)
        scored = sorted(((_lift(rows[i], fit, query.now), i) for i, fit in placed.items()), reverse=True)
        found: list[FoundSnippet] = []
        for score, index in scored:
            hit = _build_found(rows[index], score)
            known = [other for other in found if other.conversation_id == hit.conversation_id]
            if len(known) < query.per_conversation and hit.ref not in {other.ref for other in known}:
                found.append(hit)
        return tuple(found[: query.limit])

    async def load_catalog(self, principal: Principal, query: CatalogQuery) -> CatalogPage:
        turns = [
            row.turn
            for row in self._platform.turns.values()
            if same_owner(row.principal, principal)
            and _in_scope(row.turn.conversation_id, row.turn.id, query.scope)
            and (query.since is None or row.turn.created_at >= query.since)
            and (query.until is None or row.turn.created_at < query.until)
        ]
        turns.sort(key=lambda turn: (turn.created_at, turn.id), reverse=query.newest_first)
        page = turns[query.skip : query.skip + query.limit]
        found: list[CatalogTurn] = []
        for turn in page:
            blocks = await self.load_texts(principal, turn.conversation_id, turn.id)
            texts = choose_texts(list(map(_read_text, blocks)), query.targets)
            found.append(CatalogTurn(turn.conversation_id, turn.id, turn.ordinal, turn.created_at, texts))
        return CatalogPage(tuple(found), len(turns))

    async def count_unindexed(self, principal: Principal, scope: Scope) -> int:
        return sum(
            not row.turn.status.is_open and row.turn.id not in self._indexed
            for row in self._platform.turns.values()
            if same_owner(row.principal, principal) and _in_scope(row.turn.conversation_id, row.turn.id, scope)
        )

    def _waits(self, row: TurnRow, now: datetime) -> bool:
        ended = not row.turn.status.is_open
        return ended and row.turn.id not in self._indexed and self._due.get(row.turn.id, now) <= now

    def _take(self, row: TurnRow, now: datetime) -> IndexJob:
        tries = self._tries.get(row.turn.id, 0)
        self._tries[row.turn.id] = tries + 1
        self._due[row.turn.id] = now + timedelta(seconds=min(3600, 150 * 2 ** min(tries, 5)))
        owner = Principal(row.principal.tenant, row.principal.project, row.principal.user_id)
        return IndexJob(owner, row.turn.conversation_id, row.turn.id, tries + 1)


def _read_text(block: Block) -> CatalogText:
    body = block.body
    text = describe_attachment(body.artifact) if isinstance(body, AttachmentBody) else str(getattr(body, "text", ""))
    return CatalogText(TARGET_OF[block.type], block.ref, text[:MAX_CATALOG_CHARS], block.ts)


def _fits(row: SnippetRow, query: SnippetQuery) -> bool:
    in_time = query.since <= row.ts < query.until
    return in_time and row.snippet.target in query.targets and _in_scope(*_place(row), query.scope)


def _place(row: SnippetRow) -> tuple[ConversationId, TurnId]:
    return row.job.conversation_id, row.job.turn_id


def _in_scope(conversation_id: ConversationId, turn_id: TurnId, scope: Scope) -> bool:
    return scope.conversation_id in (None, conversation_id) and turn_id != scope.except_turn


def _order_by_vector(rows: Sequence[SnippetRow], asked: QueryVector) -> list[int]:
    likeness = {
        index: sum(a * b for a, b in zip(row.embedded.vector, asked.vector, strict=True))
        for index, row in enumerate(rows)
        if row.embedded.vector is not None and row.encoder == asked.encoder
    }
    return sorted(likeness, key=lambda index: (-likeness[index], -index))


def _fit_words(rows: Sequence[SnippetRow], text: str) -> dict[int, float]:
    fits: dict[int, float] = {}
    for word in find_words(text, limit=16):
        for weight, texts in ((1.0, [f"{row.snippet.anchors}\n{row.snippet.text}" for row in rows]),
                              (3.0, [row.snippet.anchors for row in rows])):  # fmt: skip
            having = [index for index, text in enumerate(texts) if word in find_words(text, limit=250)]
            idf = math.log(1 + (len(rows) - len(having) + 0.5) / (len(having) + 0.5))
            worth = idf * (COMMON_WEIGHT if len(having) > COMMON_ROWS else 1.0)
            for index in having:
                fits[index] = fits.get(index, 0.0) + weight * worth
    return fits


def _lift(row: SnippetRow, fit: float, now: datetime) -> float:
    age_s = max(0.0, (now - row.ts).total_seconds())
    return fit * (1 + 0.25 * 0.5 ** (age_s / HALF_LIFE_S))


def _build_found(row: SnippetRow, score: float) -> FoundSnippet:
    snippet = row.snippet
    return FoundSnippet(*_place(row), snippet.target, snippet.ref, snippet.text, row.ts, score)
