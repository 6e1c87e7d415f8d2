"""Signals: what a person says to a conversation that is busy, and the receipt that follows it to its end."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from everturn.model.artifacts import Artifact
from everturn.model.ids import SignalId, TurnId


class SignalKind(StrEnum):
    """FOLLOWUP adds work, STEER redirects (a blank one stops), CANCEL ends the turn."""

    FOLLOWUP = "followup"
    STEER = "steer"
    CANCEL = "cancel"


class SignalState(StrEnum):
    """A receipt. ACCEPTED may become any of the others, and those are final."""

    ACCEPTED = "accepted"
    APPLIED = "applied"
    PROMOTED = "promoted"
    EXPIRED = "expired"
    REJECTED = "rejected"
    RETRACTED = "retracted"


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal row. `round` says where it was applied; `promoted_to` which turn it became."""

    id: SignalId
    turn_id: TurnId
    kind: SignalKind
    text: str
    state: SignalState
    created_at: datetime
    attachments: tuple[Artifact, ...] = ()
    round: int | None = None
    promoted_to: TurnId | None = None
