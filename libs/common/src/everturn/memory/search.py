"""Memory search: snippets, which are short texts with the ref of the full text; and the ports that index, find and
read."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.open_values import OpenEnum
from everturn.memory.embedder import Embedder, EmbedderUnavailable, Vector
from everturn.timeline.blocks import Block, BlockType

MAX_SNIPPET_CHARS = 1_000
"""About 250 tokens, the input limit of the local encoder."""

MAX_INDEXED_BYTES = 1024 * 1024
"""Of the stored bodies of one turn that are read for its snippets or for a catalog."""

MAX_LIMIT = 50

EMBED_TIMEOUT_S = 3.0
"""A query without a vector by then compares words only. The first query of a process loads the local encoder, which
takes half a second on an idle machine and several on a busy one."""

PAGE_BYTES = 2 * 1024 * 1024
"""Of the stored bodies of one page; the last block of a page can exceed it."""


class SnippetTarget(OpenEnum):
    """The source of a snippet: prompts and signals, answers, working summaries, anchors, attached files."""

    USER = "user"
    ASSISTANT = "assistant"
    SUMMARY = "summary"
    NOTES = "notes"
    ATTACHMENT = "attachment"

    @classmethod
    def fallback(cls) -> "SnippetTarget":
        """A text of unknown origin is found as a note."""
        return cls.NOTES


@dataclass(frozen=True, slots=True)
class Snippet:
    """One text. `anchors` are phrases and names with more weight in the search; `ts` is ISO 8601 in UTC."""

    target: SnippetTarget
    ref: str
    text: str
    ts: str
    anchors: str = ""


@dataclass(frozen=True, slots=True)
class IndexJob:
    """An ended turn to index. `tries` counts how often it was claimed, including this time."""

    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId
    tries: int


@dataclass(frozen=True, slots=True)
class EmbeddedSnippet:
    """A snippet with its vector; None if the encoder was unavailable."""

    snippet: Snippet
    vector: Vector | None


class SnippetIndex(Protocol):
    """Claims are made across tenants and return ids only; everything else is done as a principal."""

    async def claim_turns(self, limit: int) -> tuple[IndexJob, ...]:
        """Claim turns that ended and are not indexed. A claimed turn that is not saved can be claimed again after 30 s
        or more."""
        ...

    async def load_texts(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId
    ) -> tuple[Block, ...]:
        """The turn's blocks with text to index, in order, until their bodies have MAX_INDEXED_BYTES."""
        ...

    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        """Replace the turn's snippets and mark it as indexed; False when the turn no longer exists."""
        ...


ALL_TARGETS = frozenset(SnippetTarget)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to search: one conversation, or all of the person's if it is None. `except_turn` is never found."""

    conversation_id: ConversationId | None = None
    except_turn: TurnId | None = None


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query as a vector; only vectors of the same encoder are compared with it."""

    encoder: str
    vector: Vector


async def embed_query(embedder: Embedder, text: str, *, timeout_s: float = EMBED_TIMEOUT_S) -> QueryVector:
    """The vector of one text. Raises EmbedderUnavailable, also when there is no vector after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            (vector,) = await embedder.embed([text])
    except TimeoutError as error:
        raise EmbedderUnavailable(f"The encoder did not respond within {timeout_s:g} s.") from error
    return QueryVector(embedder.name, vector)


@dataclass(frozen=True, slots=True)
class SnippetQuery:
    """Finds the best matches for `text`. Times from `since` up to but not `until`; without a vector only words
    count."""

    scope: Scope
    text: str
    since: datetime
    until: datetime
    now: datetime
    vector: QueryVector | None = None
    targets: frozenset[SnippetTarget] = ALL_TARGETS
    limit: int = 10
    per_conversation: int = MAX_LIMIT


@dataclass(frozen=True, slots=True)
class FoundSnippet:
    """`score` orders the hits of one search only."""

    conversation_id: ConversationId
    turn_id: TurnId
    target: SnippetTarget
    ref: str
    text: str
    ts: datetime
    score: float


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """Turns in order, after skipping `skip` of them. Times of creation, from `since` up to but not `until`."""

    scope: Scope
    since: datetime | None = None
    until: datetime | None = None
    newest_first: bool = False
    skip: int = 0
    limit: int = 20


@dataclass(frozen=True, slots=True)
class CatalogTurn:
    """One turn: `ordinal` is its place in its conversation; `blocks` its prompts, answers, summaries and anchors."""

    conversation_id: ConversationId
    turn_id: TurnId
    ordinal: int
    created_at: datetime
    blocks: tuple[Block, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CatalogPage:
    """`total` counts all turns that match the query, regardless of its limit."""

    turns: tuple[CatalogTurn, ...]
    total: int


class MemorySearch(Protocol):
    """Search among snippets by meaning and words, and among turns by position and time. All calls see only the
    principal's own conversations; any other appears empty."""

    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        """The best first, one for each ref; as many as `limit` if there are that many."""
        ...

    async def load_catalog(self, principal: Principal, query: CatalogQuery) -> CatalogPage: ...


@dataclass(frozen=True, slots=True)
class BlockPage:
    """Blocks of a turn, in order. `more` means that the turn has later ones."""

    blocks: tuple[Block, ...]
    more: bool


class ConversationReader(Protocol):
    """All calls see only the principal's own conversations; any other appears to have no blocks."""

    async def load_turn_blocks(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        after_seq: int = 0,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        """The turn's blocks with a larger `seq`, until their bodies have `max_bytes` bytes together; at least one."""
        ...

    async def load_blocks_before(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        before_seq: int,
        kinds: Collection[BlockType],
        *,
        max_bytes: int = PAGE_BYTES,
    ) -> BlockPage:
        """The conversation's blocks of these types with a smaller `seq`, in order: the newest that have `max_bytes`
        bytes together. `more` means that there are older ones."""
        ...

    async def try_load_last_block(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        ref: str | None = None,
        kind: BlockType | None = None,
    ) -> Block | None:
        """The turn's last block with this ref and of this type; None matches any."""
        ...

    async def try_load_plan(self, principal: Principal, conversation_id: ConversationId, plan_id: str) -> Block | None:
        """The `react.plan` block with the newest snapshot of a plan."""
        ...
