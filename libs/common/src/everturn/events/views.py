"""A client's view of a conversation: the state that events change and that REST reads. Both must agree."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from everturn.core.errors import Problem
from everturn.core.open_values import or_else
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.turns import CutReason, TurnUsage

# A newer server may send a value that is not listed here. It is read as the last of its list, or as `or_else` says.
_UNKNOWN = "unknown"
Visibility = Annotated[Literal["internal", "external"], or_else("visibility", "internal")]
TextFormat = Annotated[Literal["markdown", "text", "html", "json", "code"], or_else("text format", "text")]
StepStatus = Annotated[Literal["started", "completed", "error"], or_else("step status", "completed")]
SourceType = Annotated[Literal["web", "file", "attachment", "manual"], or_else("source type", "manual")]
SignalKind = Annotated[
    Literal["followup", "steer", "cancel", "event", "approve", "deny", "unknown"], or_else("signal kind", _UNKNOWN)
]
SignalState = Annotated[
    Literal["accepted", "queued", "applied", "promoted", "expired", "rejected", "retracted", "unknown"],
    or_else("signal state", _UNKNOWN),
]
ApprovalState = Annotated[
    Literal["pending", "approved", "denied", "expired", "withdrawn"], or_else("approval state", "withdrawn")
]
Reaction = Annotated[Literal["ok", "not_ok", "neutral"], or_else("reaction", "neutral")]
TurnStatus = Annotated[
    Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "unknown"],
    or_else("turn status", _UNKNOWN),
]
Outcome = Annotated[
    Literal["completed", "stopped", "cancelled", "capped", "cut", "unknown"], or_else("outcome", _UNKNOWN)
]
ConversationState = Annotated[
    Literal["idle", "queued", "running", "waiting", "error", "unknown"], or_else("conversation state", _UNKNOWN)
]


class View(BaseModel):
    """Base of all views: frozen, and rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileView(View):
    """A file that the client can download from `url` (a path on the ingress). `size` in bytes."""

    artifact_id: str
    ref: str
    rn: str
    filename: str
    mime: str
    size: int
    visibility: Visibility
    url: str
    verdict: str


class TextView(View):
    """Streamed text. One per (round, channel, instance); `marker` says where the client shows it."""

    round: int
    channel: str
    instance: int
    marker: str
    format: TextFormat
    text: str
    artifact: str | None = None


class StepView(View):
    """One step of the work, such as a tool call. `step` is its key in the turn; `duration_ms` once it ended.

    `code` is the beginning of the program that the call runs and `code_chars` the length of the whole program. Both are
    absent for calls without a program. The detail of the step has the whole program.
    """

    step: str
    status: StepStatus
    title: str
    round: int
    tool_id: str | None = None
    call_id: str | None = None
    params: dict[str, Any] | None = None
    code: str | None = None
    code_chars: int | None = None
    result_preview: str | None = None
    duration_ms: int | None = None
    error: str | None = None


class StepDetail(StepView):
    """One step with everything that the view of its turn shortens: the full program, parameters and result.

    `result` is the text that the model received. `code_ref` and `result_ref` name the blocks of the timeline. `log` is
    the program's output, if that is more than its result shows.
    """

    code_ref: str | None = None
    result: str | None = None
    result_ref: str | None = None
    log: FileView | None = None


class CitationView(View):
    """A web source that the answer cites as [[S:sid]], as it was at that time."""

    sid: int
    title: str
    url: str
    source_type: SourceType
    published_time_iso: str | None = None
    favicon_url: str | None = None


class EventView(View):
    """The kind of an external event, and whether the agent must act on it."""

    kind: str
    reactive: bool


class SignalView(View):
    """A signal with its receipt. An event that waits for the next turn is `queued`; `event` is set for events only.

    `approval_id` is set for answers to an approval; their `text` is the reason.
    """

    signal_id: str
    kind: SignalKind
    state: SignalState
    text: str
    attachments: tuple[FileView, ...] = ()
    round: int | None = None
    promoted_to: str | None = None
    event: EventView | None = None
    approval_id: str | None = None


class ApprovalView(View):
    """A call that needs a person's approval.

    `params` are those of the call without secrets; `cut` means that some are left out. The approval counts as denied at
    `expires_at`. `explanation` says why approval is needed, and is empty if the tool always needs it. `reason` is the
    person's.
    """

    approval_id: str
    call_id: str
    tool_id: str
    params: dict[str, Any]
    cut: bool = False
    state: ApprovalState
    round: int
    expires_at: str
    explanation: str = ""
    reason: str = ""


class FeedbackView(View):
    """Feedback on the turn."""

    origin: Literal["user", "machine"]
    reaction: Reaction | None = None
    text: str
    ts: str
    confidence: float | None = None


class TurnView(View):
    """One turn. `sealed_round` is the last round whose texts are committed; `answer` is the latest completion as shown.

    `elapsed_ms` counts from the turn's start to its end. `cut_reason` says why the answer is incomplete; a followup
    continues it.
    """

    turn_id: str
    ordinal: int
    status: TurnStatus
    text: str
    attachments: tuple[FileView, ...] = ()
    created_at: str = ""
    texts: tuple[TextView, ...] = ()
    steps: tuple[StepView, ...] = ()
    plans: tuple[PlanSnapshot, ...] = ()
    files: tuple[FileView, ...] = ()
    citations: tuple[CitationView, ...] = ()
    signals: tuple[SignalView, ...] = ()
    approvals: tuple[ApprovalView, ...] = ()
    feedback: tuple[FeedbackView, ...] = ()
    followups: tuple[str, ...] = ()
    answer: str | None = None
    outcome: Outcome | None = None
    cut_reason: CutReason | None = None
    error: Problem | None = None
    usage: TurnUsage | None = None
    rounds: int = 0
    sealed_round: int = 0
    elapsed_ms: int | None = None
    sources_used: tuple[int, ...] = ()


class ConversationView(View):
    """A conversation as clients see it. Times are ISO 8601 in UTC."""

    conversation_id: str
    title: str
    state: ConversationState
    bundle_id: str | None = None
    archived: bool = False
    created_at: str
    last_activity_at: str


class StateView(View):
    """A conversation with its last turns, oldest first; `cursor` is the event id the state includes.

    `next_cursor` is the cursor of older turns, None when there are none.
    """

    conversation: ConversationView
    turns: tuple[TurnView, ...]
    cursor: str
    next_cursor: str | None = None
