"""Memory search: snippets, which are short texts with the ref of the full text; and the ports that index and find."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.open_values import OpenEnum
from everturn.files.model import Artifact
from everturn.memory.embedder import Embedder, EmbedderUnavailable, Vector
from everturn.timeline.blocks import Block, BlockType

MAX_SNIPPET_CHARS = 1_000
"""About 250 tokens, the input limit of the local encoder."""

MAX_INDEXED_BYTES = 1024 * 1024
"""Limit for the stored bodies of one turn that are read for its snippets."""

MAX_CATALOG_TEXTS = 8
"""Limit for one turn in a catalog."""
MAX_CATALOG_CHARS = 600
"""Limit for one text in a catalog; the rest is not read."""

MAX_LIMIT = 50

EMBED_TIMEOUT_S = 3.0
"""A query without a vector by then compares words only. The first query of a process loads the local encoder, which
takes half a second on an idle machine and several on a busy one."""


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


TARGET_OF: Mapping[BlockType, SnippetTarget] = {
    BlockType.USER_PROMPT: SnippetTarget.USER,
    BlockType.ATTACHMENT_META: SnippetTarget.ATTACHMENT,
    BlockType.USER_FOLLOWUP: SnippetTarget.USER,
    BlockType.USER_STEER: SnippetTarget.USER,
    BlockType.EXTERNAL_EVENT: SnippetTarget.USER,
    BlockType.ANCHOR: SnippetTarget.NOTES,
    BlockType.COMPLETION: SnippetTarget.ASSISTANT,
    BlockType.WORKING_SUMMARY: SnippetTarget.SUMMARY,
}
"""The blocks that are indexed and listed: those with texts, without tool calls, results and thinking."""

ONE_OF_TURN = (SnippetTarget.SUMMARY, SnippetTarget.ASSISTANT)
"""A catalog has only the last text of these targets."""


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
    """Turns in order, after skipping `skip` of them, with their texts of `targets`. Times of creation, from `since` up
    to but not `until`."""

    scope: Scope
    targets: frozenset[SnippetTarget] = ALL_TARGETS
    since: datetime | None = None
    until: datetime | None = None
    newest_first: bool = False
    skip: int = 0
    limit: int = 20


@dataclass(frozen=True, slots=True)
class CatalogText:
    """A text of a turn. `text` is its beginning, at most MAX_CATALOG_CHARS; `ref` leads to all of it."""

    target: SnippetTarget
    ref: str
    text: str = field(repr=False)
    ts: str


@dataclass(frozen=True, slots=True)
class CatalogTurn:
    """One turn: `ordinal` is its place in its conversation. `texts` are in the order of the turn: its last summary, its
    last answer, and the first of the others, at most MAX_CATALOG_TEXTS; its prompt if it has none of the requested
    targets."""

    conversation_id: ConversationId
    turn_id: TurnId
    ordinal: int
    created_at: datetime
    texts: tuple[CatalogText, ...]


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

    async def count_unindexed(self, principal: Principal, scope: Scope) -> int:
        """How many ended turns `find_snippets` can't find yet."""
        ...


def describe_attachment(artifact: Artifact) -> str:
    """The text of an attached file in a catalog."""
    return f"{artifact.filename} ({artifact.mime}, {artifact.size} bytes)"


def choose_texts(texts: Sequence[CatalogText], targets: frozenset[SnippetTarget]) -> tuple[CatalogText, ...]:
    """What a catalog shows of a turn, of its texts in order: see CatalogTurn."""
    last = {each.target: each for each in texts}
    said = [each for each in texts if each.text.strip()]
    wanted = [
        each
        for each in said
        if each.target in targets and (each.target not in ONE_OF_TURN or last[each.target] is each)
    ]
    prompt = [each for each in said if each.target is SnippetTarget.USER][:1]
    return tuple(wanted[:MAX_CATALOG_TEXTS] or prompt)
