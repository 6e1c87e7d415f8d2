"""Feedback: what people and programs think of a turn, and what that comes to in a period."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from everturn.model.ids import ConversationId, TurnId
from everturn.model.open_values import OpenEnum


class Reaction(OpenEnum):
    """A judgement."""

    OK = "ok"
    NOT_OK = "not_ok"
    NEUTRAL = "neutral"

    @classmethod
    def stand_in(cls) -> "Reaction":
        """A rating that this version cannot read counts neither way."""
        return cls.NEUTRAL


@dataclass(frozen=True, slots=True)
class Feedback:
    """One judgement of one turn. A user has at most one per turn; machine ones add up. `confidence` is 0 to 1."""

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
    """How many of each. `unrated` have a text only."""

    ok: int = 0
    not_ok: int = 0
    neutral: int = 0
    unrated: int = 0

    @property
    def satisfaction(self) -> float | None:
        """`ok / (ok + not_ok + neutral)`; None where nothing was judged."""
        judged = self.ok + self.not_ok + self.neutral
        return self.ok / judged if judged else None


@dataclass(frozen=True, slots=True)
class FeedbackTotals:
    """Judgements of people and of machines apart: the latter add to the former and don't replace them."""

    conversations: int
    turns: int
    user: Judgements
    machine: Judgements
    machine_confidence: float | None
    """The mean of those that say how sure they are."""


@dataclass(frozen=True, slots=True)
class JudgedConversation:
    """One conversation with judgements in a period. `title` is for its owner only."""

    conversation_id: ConversationId
    user_id: str
    title: str | None
    last_judged_at: datetime
    totals: FeedbackTotals
