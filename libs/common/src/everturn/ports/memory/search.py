"""Searching what was said: by meaning and words among snippets, and by place or time among turns."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from everturn.model.blocks import Block
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.memory.snippets import SnippetTarget
from everturn.ports.memory.embedder import Vector

MAX_LIMIT = 50
ALL_TARGETS = frozenset(SnippetTarget)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look: one conversation, or all of the person's when it is None. `except_turn` is never found."""

    conversation_id: ConversationId | None = None
    except_turn: TurnId | None = None


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A question as a vector; only vectors of the same encoder are compared with it."""

    encoder: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class SnippetQuery:
    """What fits `text` best. Times from `since` on and before `until`; without a vector only words count."""

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
    """`score` orders the hits of one search and means nothing beyond it."""

    conversation_id: ConversationId
    turn_id: TurnId
    target: SnippetTarget
    ref: str
    text: str
    ts: datetime
    score: float


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """Turns in their order; `skip` of them are passed over. Times of creation, from `since` on and before `until`."""

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
    """`total` counts the turns that fit the query, whatever its limit."""

    turns: tuple[CatalogTurn, ...]
    total: int


class SnippetFinder(Protocol):
    """All calls see only the principal's own conversations; another's is as if it had said nothing."""

    async def find_snippets(self, principal: Principal, query: SnippetQuery) -> tuple[FoundSnippet, ...]:
        """The best first, one for each ref; as many as `limit` wherever there are so many."""
        ...


class MemorySearch(SnippetFinder, Protocol):
    """Search for the agent: among snippets as well as among turns by place and time."""

    async def load_catalog(self, principal: Principal, query: CatalogQuery) -> CatalogPage: ...
