"""Keeping what people and programs think of turns, and counting it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.model.feedback import Feedback, FeedbackTotals, JudgedConversation, Period
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId

MAX_MACHINE_JUDGEMENTS = 100
"""Of one turn."""


@dataclass(frozen=True, slots=True)
class JudgedPosition:
    """A place in the list of judged conversations: behind this one, which was last judged then."""

    last_judged_at: datetime
    conversation_id: ConversationId


class FeedbackBook(Protocol):
    """All calls see only the principal's own turns; another's id is NotFound."""

    async def save(self, principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Feedback:
        """A user's judgement replaces the one before (no reaction and no text clear it), a machine's is added.

        Raises Conflict when the turn has MAX_MACHINE_JUDGEMENTS of machines already.
        """
        ...

    async def load_totals(self, principal: Principal, period: Period, *, project: bool) -> FeedbackTotals:
        """Of the principal's own turns, or of everybody's in the project; the caller has checked who may ask that."""
        ...

    async def load_judged(
        self, principal: Principal, period: Period, *, project: bool, limit: int, after: JudgedPosition | None
    ) -> tuple[JudgedConversation, ...]:
        """At most `limit` conversations, the last judged first, those behind `after`; `project` as above."""
        ...
