"""Turns and signals: the states of each, and the receipt of a signal."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from everturn.core.api_model import ApiModel
from everturn.core.errors import Problem
from everturn.core.ids import ApprovalId, ConversationId, SignalId, TurnId
from everturn.core.open_values import OpenEnum, or_else
from everturn.files.model import Artifact

MAX_EVENT_CREDIT = 3
"""Rounds that one external event can add to its turn."""
MAX_PAYLOAD_BYTES = 16 * 1024
"""Limit for an event's payload as JSON."""

CutReason = Annotated[
    Literal[
        "length",
        "content_filter",
        "refusal",
        "size_limit",
        "time_limit",
        "incomplete",
        "provider_error",
        "server_error",
    ],
    or_else("cut reason", "incomplete"),
]
"""Why an answer stops before its end.

`length`: the token limit of one reply. `content_filter` and `refusal`: the provider's filter or the model itself ended
it. `size_limit` and `time_limit`: our own limits on the size of a reply and on the time of a turn. `incomplete`: the
model ended its reply in the middle of the answer. `provider_error`: the connection or the provider failed, and so did
every retry. `server_error`: our own code failed.
"""


class SignalKind(OpenEnum):
    """FOLLOWUP adds work, STEER redirects (a blank one stops), CANCEL ends the turn, EVENT reports an external event.

    APPROVE and DENY answer an approval that the turn waits for. UNKNOWN is a kind that only a newer version knows.
    """

    FOLLOWUP = "followup"
    STEER = "steer"
    CANCEL = "cancel"
    EVENT = "event"
    APPROVE = "approve"
    DENY = "deny"
    UNKNOWN = "unknown"


class SignalState(OpenEnum):
    """A receipt. ACCEPTED can become any of the others, and those are final.

    APPLIED is on the timeline, PROMOTED became (part of) the next turn, EXPIRED had nothing left to do, REJECTED could
    not be made a block. UNKNOWN is a state that only a newer version knows.
    """

    ACCEPTED = "accepted"
    APPLIED = "applied"
    PROMOTED = "promoted"
    EXPIRED = "expired"
    REJECTED = "rejected"
    RETRACTED = "retracted"
    UNKNOWN = "unknown"


ANSWER_KINDS = frozenset({SignalKind.APPROVE, SignalKind.DENY})
"""Answers to an approval."""
CONTROL_KINDS = frozenset({SignalKind.STEER, SignalKind.CANCEL})
"""Signals that stop the calls that have not begun yet, and end a turn's wait for a person."""


@dataclass(frozen=True, slots=True)
class ExternalEvent:
    """The data of a signal of kind EVENT besides its text; `kind` is the sort of event, such as `form`.

    A `reactive` event asks the agent to act on it, any other is only recorded. `iteration_credit` is the number of
    rounds that a reactive one adds to the turn.
    """

    kind: str
    payload: dict[str, Any] = field(default_factory=lambda: {})
    reactive: bool = True
    iteration_credit: int = 0


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal row. `round` says where it was applied; `promoted_to` which turn it became.

    `turn_id` is None for an event that arrived with no turn open and waits for the next one. `event` is set exactly
    when the kind is EVENT, `approval_id` when it is APPROVE or DENY, whose `text` is the reason.
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
        """Whether it is an event that is only recorded."""
        return self.event is not None and not self.event.reactive


def ref_kind(kind: SignalKind, event: ExternalEvent | None) -> str:
    """The name of a signal in refs and paths: events use their own kind."""
    return event.kind if event is not None else kind.value


class TurnStatus(OpenEnum):
    """QUEUED, RUNNING and WAITING (for a person) are open; UNKNOWN is for a newer version; the others are terminal."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def is_open(self) -> bool:
        return self in (TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING)


class Outcome(OpenEnum):
    """How a turn that did not fail ended: by itself, stopped by a steer, cancelled, at a cap, or with a cut answer.

    UNKNOWN is an outcome that only a newer version understands.
    """

    COMPLETED = "completed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    CAPPED = "capped"
    CUT = "cut"
    UNKNOWN = "unknown"


class TurnUsage(ApiModel):
    """Sums over a turn's model calls. Cost in US dollars.

    `cost_known` is false when one of the calls has no price; `cost_usd` is then the sum of the others.
    """

    input_tokens: int = 0
    """Tokens that the model read."""
    output_tokens: int = 0
    """Tokens that the model wrote."""
    cache_read_tokens: int = 0
    """Tokens of the input that came from the provider's cache."""
    cost_usd: float = 0.0
    """What the model calls cost, in US dollars."""
    cost_known: bool = True
    """Whether the prices of all calls are known. Otherwise `cost_usd` is too low."""


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """An external event at the beginning of a turn: it opened the turn, arrived too late for the previous one, or
    waited for this one."""

    id: SignalId
    text: str
    event: ExternalEvent
    attachments: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The request of a turn: the text as it was sent, and the stored attachments; or events, in order, or both."""

    text: str
    attachments: tuple[Artifact, ...] = ()
    bundle_id: str | None = None
    events: tuple[RequestEvent, ...] = ()
    trace: str | None = None
    """The span of the request as a `traceparent`, stored so that the worker of the turn can refer to it."""
    time_zone: str | None = None
    """The person's, an IANA name; a turn that a followup opens inherits it from the previous turn."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn row. `ordinal` counts from 1 in its conversation; `attempt` counts takeovers since the last commit."""

    id: TurnId
    conversation_id: ConversationId
    ordinal: int
    status: TurnStatus
    attempt: int
    request: TurnRequest
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    usage: TurnUsage | None = None
    error: Problem | None = None
    leased_s: float = 0.0
    """Seconds for which workers held its lease, without the present lease."""
    read_at: datetime | None = None
    """When the row was read, by the same clock as its other times."""
