"""Conversations as their owner lists, renames and erases them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from everturn.model.conversations import Conversation, ConversationState
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """Newest activity first. `cursor` is the opaque `next_cursor` of the page before; `search` matches titles."""

    limit: int = 50
    cursor: str | None = None
    search: str | None = None
    state: ConversationState | None = None
    archived: bool = False


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """At most `limit` rows, and where to go on."""

    conversations: tuple[Conversation, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Erasure:
    """What an erasure removed: rows per table, and the keys of the objects that now have no row."""

    rows: Mapping[str, int]
    object_keys: tuple[str, ...]


class Conversations(Protocol):
    """All calls see only the principal's own conversations; another's id is NotFound."""

    async def create(
        self, principal: Principal, conversation_id: ConversationId, *, title: str, bundle_id: str | None
    ) -> Conversation: ...

    async def load(self, principal: Principal, conversation_id: ConversationId) -> Conversation: ...

    async def load_titles(
        self, principal: Principal, conversation_ids: Collection[ConversationId]
    ) -> Mapping[ConversationId, str]:
        """The titles of those that are there."""
        ...

    async def load_page(self, principal: Principal, query: ConversationQuery) -> ConversationPage:
        """Raises BadCursor."""
        ...

    async def save(
        self, principal: Principal, conversation_id: ConversationId, *, title: str | None, archived: bool | None
    ) -> Conversation:
        """Change what is not None."""
        ...

    async def erase(self, principal: Principal, conversation_id: ConversationId) -> Erasure:
        """Remove the conversation with all its rows; a running turn loses its lease. The caller deletes the objects."""
        ...
