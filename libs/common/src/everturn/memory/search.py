"""Memory search: snippets, the short texts that it finds, each with the ref of the whole; and the ports that index,
find and read."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.open_values import OpenEnum
from everturn.memory.embedder import Vector
from everturn.timeline.blocks import Block, BlockType

MAX_SNIPPET_CHARS = 1_000
"""About 250 tokens: what the local encoder takes in."""


class SnippetTarget(OpenEnum):
    """What kind of text a snippet is of: prompts and signals, answers, working summaries, anchors, attached files."""

    USER = "user"
    ASSISTANT = "assistant"
    SUMMARY = "summary"
    NOTES = "notes"
    ATTACHMENT = "attachment"

    @classmethod
    def stand_in(cls) -> "SnippetTarget":
        """A text of unknown origin is found as a note."""
        return cls.NOTES


@dataclass(frozen=True, slots=True)
class Snippet:
    """One text. `anchors` are phrases and names it should be found by above all; `ts` is ISO 8601 in UTC."""

    target: SnippetTarget
    ref: str
    text: str
    ts: str
    anchors: str = ""


# The indexer's side of memory search: which turns wait for it, what they said, and where their snippets go.

MAX_INDEXED_BYTES = 1024 * 1024
"""Of the stored bodies of one turn that are read for its snippets or for a catalog."""


@dataclass(frozen=True, slots=True)
class IndexJob:
    """An ended turn that waits. `tries` counts how often it was taken, this time included."""

    principal: Principal
    conversation_id: ConversationId
    turn_id: TurnId
    tries: int


@dataclass(frozen=True, slots=True)
class EmbeddedSnippet:
    """A snippet with its vector; None where the encoder was out of reach."""

    snippet: Snippet
    vector: Vector | None


class SnippetIndex(Protocol):
    """Claims go across tenants and give ids only; everything else is in a principal's name."""

    async def claim_turns(self, limit: int) -> tuple[IndexJob, ...]:
        """Take turns that ended and are not indexed. One that is taken and not saved comes again after 30 s or more."""
        ...

    async def load_texts(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId
    ) -> tuple[Block, ...]:
        """The turn's blocks with something to index, in order, until their bodies have MAX_INDEXED_BYTES."""
        ...

    async def save_snippets(
        self, principal: Principal, job: IndexJob, snippets: Sequence[EmbeddedSnippet], *, encoder: str
    ) -> bool:
        """Put these in place of the turn's snippets and mark it as indexed; False when the turn is gone."""
        ...


# Searching what was said: by meaning and words among snippets, and by place or time among turns.

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


# Reading back blocks that a worker has not in memory: of older turns, and of the person's other conversations.

PAGE_BYTES = 2 * 1024 * 1024
"""Of the stored bodies of one page; the last block of a page may go beyond."""


@dataclass(frozen=True, slots=True)
class BlockPage:
    """Blocks of a turn, in order. `more` says whether the turn has later ones."""

    blocks: tuple[Block, ...]
    more: bool


class ConversationReader(Protocol):
    """All calls see only the principal's own conversations; another's is as if it had no blocks."""

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
        bytes together. `more` says whether there are older ones."""
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
        """The turn's last block with this ref and of this type; None stands for any."""
        ...

    async def try_load_plan(self, principal: Principal, conversation_id: ConversationId, plan_id: str) -> Block | None:
        """The `react.plan` block with the newest snapshot of a plan."""
        ...
