"""A conversation, a durable thread of turns that owns one timeline: as it is stored, as clients see it, and the port
that stores it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Protocol

from everturn.core.api_model import ApiModel
from everturn.core.clock import iso
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.core.open_values import OpenEnum, or_else

StateName = Annotated[
    Literal["idle", "queued", "running", "waiting", "error", "unknown"], or_else("conversation state", "unknown")
]
"""A state as clients receive it."""


class ConversationState(OpenEnum):
    """The state of a conversation. UNKNOWN is a state that only a newer version knows."""

    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation row."""

    id: ConversationId
    title: str
    state: ConversationState
    bundle_id: str | None
    archived: bool
    created_at: datetime
    last_activity_at: datetime


class ConversationView(ApiModel):
    """A conversation as clients see it. Times are ISO 8601 in UTC."""

    conversation_id: str
    title: str
    """The title of the conversation; empty until it has one."""
    state: StateName
    """`idle`, `queued` for a worker, `running`, `waiting` for an approval, or `error` if the last turn failed."""
    bundle_id: str | None = None
    """The agent that answers; without it, the server's default."""
    archived: bool = False
    """Whether the conversation is archived."""
    created_at: str
    last_activity_at: str
    """When something last happened in it, in ISO 8601 and UTC."""


def build_conversation_view(conversation: Conversation) -> ConversationView:
    """One conversation row as clients see it."""
    return ConversationView(
        conversation_id=conversation.id,
        title=conversation.title,
        state=conversation.state.value,
        bundle_id=conversation.bundle_id,
        archived=conversation.archived,
        created_at=iso(conversation.created_at),
        last_activity_at=iso(conversation.last_activity_at),
    )


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """Newest activity first. `cursor` is the opaque `next_cursor` of the previous page; `search` matches titles."""

    limit: int = 50
    cursor: str | None = None
    search: str | None = None
    state: ConversationState | None = None
    archived: bool = False


@dataclass(frozen=True, slots=True)
class ConversationChanges:
    """What the owner changes. Fields that are None stay as they are."""

    title: str | None = None
    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """At most `limit` rows, and the cursor of the next page."""

    conversations: tuple[Conversation, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Erasure:
    """What an erasure removed: rows per table, and the keys of the objects that no row names any more."""

    rows: Mapping[str, int]
    object_keys: tuple[str, ...]


class Conversations(Protocol):
    """All calls see only the principal's own conversations; any other id raises NotFound."""

    async def create(
        self, principal: Principal, conversation_id: ConversationId, *, title: str, bundle_id: str | None
    ) -> Conversation: ...

    async def load(self, principal: Principal, conversation_id: ConversationId) -> Conversation: ...

    async def load_titles(
        self, principal: Principal, conversation_ids: Collection[ConversationId]
    ) -> Mapping[ConversationId, str]:
        """The titles of those that exist."""
        ...

    async def load_page(self, principal: Principal, query: ConversationQuery) -> ConversationPage:
        """Raises BadCursor."""
        ...

    async def save(
        self, principal: Principal, conversation_id: ConversationId, changes: ConversationChanges
    ) -> Conversation: ...

    async def erase(self, principal: Principal, conversation_id: ConversationId) -> Erasure:
        """Remove the conversation with all its rows; a running turn loses its lease. The caller deletes the objects."""
        ...
