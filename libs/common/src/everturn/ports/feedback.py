"""Keeping what people and programs think of turns."""

from typing import Protocol

from everturn.model.feedback import Feedback
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId


class FeedbackBook(Protocol):
    """All calls see only the principal's own turns; another's id is NotFound."""

    async def save(self, principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Feedback:
        """A user's judgement replaces the one before (no reaction and no text clear it), a machine's is added."""
        ...
