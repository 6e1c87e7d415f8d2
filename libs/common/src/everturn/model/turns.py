"""A turn: all work for one message. The row says where it stands; the blocks say what happened."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict

from everturn.model.artifacts import Artifact
from everturn.model.ids import ConversationId, SignalId, TurnId
from everturn.model.open_values import OpenEnum, or_else
from everturn.model.problems import Problem
from everturn.model.signals import ExternalEvent


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


CutReason = Annotated[
    Literal["length", "content_filter", "refusal", "size_limit", "incomplete", "provider_error", "server_error"],
    or_else("cut reason", "incomplete"),
]
"""Why an answer stops before its end.

`length`: the token limit of one reply. `content_filter` and `refusal`: the provider's filter or the model itself ended
it. `size_limit`: our own cap on the size of a reply. `incomplete`: the model ended its reply in the middle of the
answer. `provider_error`: the connection or the provider failed, and so did every further attempt. `server_error`: our
own code failed.
"""


class TurnUsage(BaseModel):
    """Sums over a turn's model calls. Cost in US dollars.

    `cost_known` is false when one of the calls has no price; `cost_usd` is then the sum of the others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost_usd: float = 0.0
    cost_known: bool = True


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """An external event that a turn begins with: it opened the turn, came too late for the last, or waited for this."""

    id: SignalId
    text: str
    event: ExternalEvent
    attachments: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What the turn was asked: the text as it was sent, and the stored attachments; or events, in order, or both."""

    text: str
    attachments: tuple[Artifact, ...] = ()
    bundle_id: str | None = None
    events: tuple[RequestEvent, ...] = ()
    trace: str | None = None
    """The span that asked, as a `traceparent`; kept with the request, so that whoever works on it can name it."""
    time_zone: str | None = None
    """The person's, an IANA name; a turn that a followup opens has that of the turn before."""


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
    """Seconds for which workers held it, without the lease that it is held under now."""
    read_at: datetime | None = None
    """When the row was read, by the clock that its other times are from."""
