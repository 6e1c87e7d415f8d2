"""Signals: what is said to a conversation that is busy, and the receipt that follows it to its end."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from everturn.model.artifacts import Artifact
from everturn.model.ids import ApprovalId, SignalId, TurnId
from everturn.model.open_values import OpenEnum


class SignalKind(OpenEnum):
    """FOLLOWUP adds work, STEER redirects (a blank one stops), CANCEL ends the turn, EVENT tells of things outside.

    APPROVE and DENY answer an approval that the turn waits for. UNKNOWN is what only a newer version understands.
    """

    FOLLOWUP = "followup"
    STEER = "steer"
    CANCEL = "cancel"
    EVENT = "event"
    APPROVE = "approve"
    DENY = "deny"
    UNKNOWN = "unknown"


class SignalState(OpenEnum):
    """A receipt. ACCEPTED may become any of the others, and those are final.

    APPLIED stands on the timeline, PROMOTED became (part of) the next turn, EXPIRED had nothing left to do, REJECTED
    could not be made a block. UNKNOWN is a state that only a newer version understands.
    """

    ACCEPTED = "accepted"
    APPLIED = "applied"
    PROMOTED = "promoted"
    EXPIRED = "expired"
    REJECTED = "rejected"
    RETRACTED = "retracted"
    UNKNOWN = "unknown"


ANSWER_KINDS = frozenset({SignalKind.APPROVE, SignalKind.DENY})
"""What answers an approval."""
CONTROL_KINDS = frozenset({SignalKind.STEER, SignalKind.CANCEL})
"""What stops the calls that have not begun yet, and ends a turn's wait for a person."""
MAX_EVENT_CREDIT = 3
"""Rounds that one external event may add to its turn."""
MAX_PAYLOAD_BYTES = 16 * 1024
"""Of an event's payload as JSON."""


@dataclass(frozen=True, slots=True)
class ExternalEvent:
    """What a signal of kind EVENT tells besides its text; `kind` is its sort, such as `form`.

    A `reactive` one asks the agent to do something about it, another one is only recorded. `iteration_credit` are the
    rounds that a reactive one adds to the turn.
    """

    kind: str
    payload: dict[str, Any] = field(default_factory=lambda: {})
    reactive: bool = True
    iteration_credit: int = 0


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal row. `round` says where it was applied; `promoted_to` which turn it became.

    `turn_id` is None for an event that came to a conversation at rest and waits for its next turn. `event` is there
    exactly when the kind is EVENT, `approval_id` when it is APPROVE or DENY; `text` is the reason of these.
    """

    id: SignalId
    turn_id: TurnId | None
    kind: SignalKind
    text: str
    state: SignalState
    created_at: datetime
    attachments: tuple[Artifact, ...] = ()
    round: int | None = None
    promoted_to: TurnId | None = None
    event: ExternalEvent | None = None
    approval_id: ApprovalId | None = None

    @property
    def is_record(self) -> bool:
        """Whether it is an event that asks for nothing."""
        return self.event is not None and not self.event.reactive


def ref_kind(kind: SignalKind, event: ExternalEvent | None) -> str:
    """What a signal is called in refs and paths: an event by its own sort."""
    return event.kind if event is not None else kind.value
