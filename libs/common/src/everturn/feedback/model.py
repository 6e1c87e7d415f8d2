"""Feedback: ratings of turns by people and programs, and their totals in a period."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.core.open_values import OpenEnum

MAX_MACHINE_JUDGEMENTS = 100
"""Limit for one turn."""


class Reaction(OpenEnum):
    """A rating."""

    OK = "ok"
    NOT_OK = "not_ok"
    NEUTRAL = "neutral"

    @classmethod
    def fallback(cls) -> "Reaction":
        """A rating that this version does not know counts as neutral."""
        return cls.NEUTRAL


@dataclass(frozen=True, slots=True)
class Feedback:
    """One rating of one turn. A user has at most one per turn; those of machines add up. `confidence` is 0 to 1."""

    turn_id: TurnId
    origin: Literal["user", "machine"]
    reaction: Reaction | None
    text: str
    ts: datetime
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` on and before `until`."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Judgements:
    """The number of each rating. `unrated` have a text only."""

    ok: int = 0
    not_ok: int = 0
    neutral: int = 0
    unrated: int = 0

    @property
    def satisfaction(self) -> float | None:
        """`ok / (ok + not_ok + neutral)`; None if nothing was rated."""
        rated = self.ok + self.not_ok + self.neutral
        return self.ok / rated if rated else None


@dataclass(frozen=True, slots=True)
class FeedbackTotals:
    """Ratings of people and of machines separately: the latter add to the former and don't replace them."""

    conversations: int
    turns: int
    user: Judgements
    machine: Judgements
    machine_confidence: float | None
    """The mean of those with a confidence."""


@dataclass(frozen=True, slots=True)
class ConversationFeedback:
    """The feedback on one conversation in a period. `title` is for its owner only."""

    conversation_id: ConversationId
    user_id: str
    title: str | None
    last_feedback_at: datetime
    totals: FeedbackTotals


@dataclass(frozen=True, slots=True)
class FeedbackPosition:
    """A position in the list of conversations with feedback: after this one, whose last feedback has this time."""

    last_feedback_at: datetime
    conversation_id: ConversationId


class FeedbackStore(Protocol):
    """All calls see only the principal's own turns; any other id raises NotFound."""

    async def save(self, principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Feedback:
        """A user's rating replaces the previous one (one with no reaction or text clears it); a machine's is added.

        Raises Conflict when the turn already has MAX_MACHINE_JUDGEMENTS of machines.
        """
        ...

    async def load_totals(self, principal: Principal, period: Period, *, project: bool) -> FeedbackTotals:
        """Of the principal's own turns, or of all in the project; the caller has checked that this is allowed."""
        ...

    async def load_conversations(
        self, principal: Principal, period: Period, *, project: bool, limit: int, after: FeedbackPosition | None
    ) -> tuple[ConversationFeedback, ...]:
        """At most `limit` conversations with feedback after `after`, the latest feedback first; `project` as above."""
        ...
