"""The indexer's side of memory search: which turns wait for it, what they said, and where their snippets go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from everturn.model.blocks import Block
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.memory.snippets import Snippet
from everturn.ports.memory.embedder import Vector

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
