"""Feedback as clients send it, and reports of it."""

from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from everturn.wire.views import FeedbackView
from ingress.admission.json_body import Cursor, JsonBody
from ingress.admission.moments import Moment

Scope = Literal["own", "project"]


class FeedbackIn(JsonBody):
    """Feedback on a turn. A user's replaces the previous one; null without a text removes it. A machine's is added."""

    reaction: Literal["ok", "not_ok", "neutral"] | None = Field(examples=["ok"])
    text: str = Field(default="", max_length=10_000, examples=["Just what I needed."])
    ts: Moment | None = Field(default=None, strict=False, description="When it was given; defaults to now.")
    origin: Literal["user", "machine"] = "user"
    confidence: float | None = Field(
        default=None, ge=0, le=1, description="How sure the machine is, from 0 to 1; only with origin `machine`."
    )

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
    """A period: `from` is included, `to` is not. `scope` is `own`, or for admins `project`, their default."""

    since: Moment = Field(alias="from", strict=False, examples=["2026-03-01T00:00:00Z"])
    until: Moment = Field(alias="to", strict=False, examples=["2026-04-01T00:00:00Z"])
    cursor: Cursor | None = Field(default=None, description="The `next_cursor` of the previous page.")
    limit: int = Field(default=50, ge=1, le=100, description="Maximum number of rows on a page.")
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
    """A conversation that got feedback in the period. `title` is null in a report of the whole project."""

    conversation_id: str
    user_id: str
    title: str | None
    last_judged_at: str
    turns: int
    satisfaction: float | None


class PeriodOut(Out):
    """One page, the latest feedback first; `next_cursor` leads to the next page and is null at the end."""

    scope: Scope
    items: tuple[JudgedOut, ...]
    next_cursor: str | None


class SummaryOut(TotalsOut):
    """`satisfaction` is ok / (ok + not_ok + neutral) of people's feedback; null without any."""

    scope: Scope
    satisfaction: float | None
    conversations: int
    turns: int
