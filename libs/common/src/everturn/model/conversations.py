"""A conversation: a durable thread of turns that owns one timeline."""

from dataclasses import dataclass
from datetime import datetime

from everturn.model.ids import ConversationId
from everturn.model.open_values import OpenEnum


class ConversationState(OpenEnum):
    """What a conversation does right now. UNKNOWN is a state that only a newer version understands."""

    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    ERROR = "error"
    UNKNOWN = "unknown"


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
