"""Feedback: what people and programs think of a turn."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from everturn.model.ids import TurnId


class Reaction(StrEnum):
    """A judgement."""

    OK = "ok"
    NOT_OK = "not_ok"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Feedback:
    """One judgement of one turn. A user has at most one per turn; machine ones add up. `confidence` is 0 to 1."""

    turn_id: TurnId
    origin: Literal["user", "machine"]
    reaction: Reaction | None
    text: str
    ts: datetime
    confidence: float | None = None
