"""A conversation: a durable thread of turns that owns one timeline."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from everturn.model.ids import ConversationId


class ConversationState(StrEnum):
    """What a conversation does right now."""

    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation row as a client may see it."""

    id: ConversationId
    title: str
    state: ConversationState
    bundle_id: str | None
    archived: bool
    created_at: datetime
    last_activity_at: datetime
