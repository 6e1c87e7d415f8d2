"""Feedback as clients send it, and reports of it."""

from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from everturn.wire.views import FeedbackView
from ingress.admission.json_body import Cursor, JsonBody
from ingress.admission.moments import Moment

Scope = Literal["own", "project"]


class FeedbackIn(JsonBody):
    """A judgement of a turn. A user's replaces the one before, null without a text clears it; a machine's is added."""

    reaction: Literal["ok", "not_ok", "neutral"] | None = Field(examples=["ok"])
    text: str = Field(default="", max_length=10_000, examples=["Just what I needed."])
    ts: Moment | None = Field(default=None, strict=False, description="When it was given; now when left out.")
    origin: Literal["user", "machine"] = "user"
    confidence: float | None = Field(default=None, ge=0, le=1, description="Of a machine's judgement.")

    @model_validator(mode="after")
    def check_origin(self) -> Self:
        """Only a machine is unsure, and it has to judge."""
        if self.origin == "user" and self.confidence is not None:
            raise ValueError("confidence is for origin 'machine'")
        if self.origin == "machine" and self.reaction is None:
            raise ValueError("a machine's feedback needs a reaction")
        return self

    def moment(self, now: datetime) -> datetime:
        """When it was given; a clock ahead of ours counts as now."""
        return min(self.ts, now) if self.ts else now


class FeedbackOut(BaseModel):
    """The current feedback."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turn_id: str
    feedback: FeedbackView
    cleared: bool


class PeriodIn(JsonBody):
    """A period, from `from` on and before `to`. `scope` is `own`, or for admins `project`, which is their default."""

    since: Moment = Field(alias="from", strict=False, examples=["2026-03-01T00:00:00Z"])
    until: Moment = Field(alias="to", strict=False, examples=["2026-04-01T00:00:00Z"])
    cursor: Cursor | None = Field(default=None, description="The `next_cursor` of the page before.")
    limit: int = Field(default=50, ge=1, le=100, description="Rows of a page.")
    scope: Scope | None = None

    @model_validator(mode="after")
    def check_period(self) -> Self:
        """It has a beginning before its end."""
        if self.since >= self.until:
            raise ValueError("from comes before to")
        return self


class Out(BaseModel):
    """What all reports share."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CountsOut(Out):
    """Judgements by reaction; `unrated` have a text only."""

    ok: int = Field(examples=[3])
    not_ok: int = Field(examples=[1])
    neutral: int = Field(examples=[0])
    unrated: int = Field(examples=[0])


class TotalsOut(Out):
    """What people said, and beside it what machines said with their mean confidence."""

    user: CountsOut
    machine: CountsOut
    machine_confidence: float | None


class JudgedOut(TotalsOut):
    """A conversation that was judged in the period. `title` is null in a report of the whole project."""

    conversation_id: str
    user_id: str
    title: str | None
    last_judged_at: str
    turns: int
    satisfaction: float | None


class PeriodOut(Out):
    """One page, the latest feedback first; `next_cursor` gets the next one and is null at the end."""

    scope: Scope
    items: tuple[JudgedOut, ...]
    next_cursor: str | None


class SummaryOut(TotalsOut):
    """`satisfaction` is ok / (ok + not_ok + neutral) of people's judgements; null where nothing was judged."""

    scope: Scope
    satisfaction: float | None
    conversations: int
    turns: int
