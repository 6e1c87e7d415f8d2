"""Feedback as clients send it."""

from datetime import datetime
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from everturn.wire.views import FeedbackView


class FeedbackIn(BaseModel):
    """A judgement of a turn. A user's replaces the one before, null without a text clears it; a machine's is added."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    reaction: Literal["ok", "not_ok", "neutral"] | None = Field(examples=["ok"])
    text: str = Field(default="", max_length=10_000, examples=["Just what I needed."])
    ts: AwareDatetime | None = Field(default=None, strict=False, description="When it was given; now when left out.")
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
    """The feedback as it stands now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turn_id: str
    feedback: FeedbackView
    cleared: bool
