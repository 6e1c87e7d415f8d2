"""A client's view of a conversation: the state that events change and that REST reads. Both must agree."""

from typing import Annotated, Any, Literal

from everturn.conversations.model import ConversationView
from everturn.core.api_model import ApiModel
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


class FileView(ApiModel):
    """A file that the client can download from `url` (a path on the ingress). `size` in bytes."""

    artifact_id: str
    """The file's id; `GET /files/{tenant}/{project}/{artifact_id}` has its bytes."""
    ref: str
    rn: str
    """The resource name of the file."""
    filename: str
    """The name of the file."""
    mime: str
    size: int
    """Its size in bytes."""
    visibility: Visibility
    """Whether the person sees the file, or only the agent."""
    url: str
    """The path of its content on this server."""
    verdict: str
    """The result of the antivirus scan."""


class TextView(ApiModel):
    """Streamed text. One per (round, channel, instance); `marker` says where the client shows it."""

    round: int
    channel: str
    """What the text is: thinking, a note, a file that is written, or the answer."""
    instance: int
    """The number of the text among those of its channel and round."""
    marker: str
    """Where the client shows the text: with the thinking, in the conversation, on the canvas, or as the answer."""
    format: TextFormat
    """The format of the text."""
    text: str
    """The whole text so far."""
    artifact: str | None = None
    """The file that the text is written into."""


class StepView(ApiModel):
    """One step of the work, such as a tool call. `step` is its key in the turn; `duration_ms` once it ended.

    `code` is the beginning of the program that the call runs and `code_chars` the length of the whole program. Both are
    absent for calls without a program. The detail of the step has the whole program.
    """

    step: str
    """The id of the step."""
    status: StepStatus
    """Whether the step still runs, has completed, or has failed."""
    title: str
    """What the step does, for display: the name of the program, or the id of the tool."""
    round: int
    tool_id: str | None = None
    call_id: str | None = None
    params: dict[str, Any] | None = None
    code: str | None = None
    """The beginning of the program that was run."""
    code_chars: int | None = None
    """The length of the whole program in characters."""
    result_preview: str | None = None
    """The beginning of the result."""
    duration_ms: int | None = None
    """How long it took, in milliseconds."""
    error: str | None = None
    """What went wrong; absent when nothing did."""
    step_id: str | None = None
    """The step of a plan that the call belongs to; absent outside of such steps."""


class StepDetail(StepView):
    """One step with everything that the view of its turn shortens: the full program, parameters and result.

    `result` is the text that the model received. `code_ref` and `result_ref` name the blocks of the timeline. `log` is
    the program's output, if that is more than its result shows.
    """

    code_ref: str | None = None
    """The reference of the whole program."""
    result: str | None = None
    """The whole result of the call."""
    result_ref: str | None = None
    """The reference of the result."""
    log: FileView | None = None
    """The end of what the program printed."""
    receipt: dict[str, Any] | None = None
    """The signed receipt of the program's run; absent without a key for receipts."""


class CitationView(ApiModel):
    """A source that the answer cites as [[S:sid]], as it was at that time: a page, a file or a text."""

    sid: int
    """The number that answers cite the source by."""
    title: str
    """The title of the page or file."""
    url: str
    """The address of the page, or the ref of the file."""
    source_type: SourceType
    """What kind of source it is."""
    published_time_iso: str | None = None
    """When the source was published."""
    favicon_url: str | None = None
    """The address of the site's icon."""


class EventView(ApiModel):
    """The kind of an external event, and whether the agent must act on it."""

    kind: str
    """The kind of event, as its sender named it."""
    reactive: bool
    """Whether the agent must act on the event."""


class SignalView(ApiModel):
    """A signal with its receipt. An event that waits for the next turn is `queued`; `event` is set for events only.

    `approval_id` is set for answers to an approval; their `text` is the reason.
    """

    signal_id: str
    """The signal's id."""
    kind: SignalKind
    """What the signal does: adds a message, steers or cancels the turn, reports an event, or answers an approval."""
    state: SignalState
    """How far the signal has been processed; `promoted` if it became a turn of its own."""
    text: str
    """What the person wrote, or the text of the event."""
    attachments: tuple[FileView, ...] = ()
    round: int | None = None
    promoted_to: str | None = None
    """The turn that it became."""
    event: EventView | None = None
    """The external event."""
    approval_id: str | None = None


class ApprovalView(ApiModel):
    """A call that needs a person's approval.

    `params` are those of the call without secrets; `cut` means that some are left out. The approval counts as denied at
    `expires_at`. `explanation` says why approval is needed, and is empty if the tool always needs it. `reason` is the
    person's. With `connect_url` the person does not approve the call but connects an account at this address; the turn
    then continues by itself.
    """

    approval_id: str
    call_id: str
    tool_id: str
    params: dict[str, Any]
    cut: bool = False
    """Whether `params` are incomplete because they are too long."""
    state: ApprovalState
    """What the person decided: `pending` until then; `withdrawn` if the answer is no longer needed."""
    round: int
    expires_at: str
    explanation: str = ""
    """Why the call needs approval."""
    connect_url: str | None = None
    """The address at which the person connects an account, instead of approving the call."""
    details: str | None = None
    """What the call would do, as lines of plain text; absent if its tool does not describe its calls."""
    reason: str = ""
    """What the person gave as the reason; empty without one."""
    step_id: str | None = None
    """The step of a plan that the call belongs to; absent outside of such steps."""


class FeedbackView(ApiModel):
    """Feedback on the turn."""

    origin: Literal["user", "machine"]
    """Whether the feedback came from a person or a machine."""
    reaction: Reaction | None = None
    """The rating."""
    text: str
    """What was written with the rating."""
    ts: str
    confidence: float | None = None
    """How sure the machine is, from 0 to 1; absent for feedback from people."""


class StepRoundView(ApiModel):
    """A round of a step of a plan. Steps have rounds side by side, which are committed in any order."""

    round: int
    step_id: str
    """The step of the plan that the round belongs to."""
    sealed: bool
    """Whether the texts of the round are committed."""


class TurnView(ApiModel):
    """One turn. `sealed_round` is the last round whose texts are committed; `answer` is the latest completion as shown.

    `elapsed_ms` counts from the turn's start to its end. `cut_reason` says why the answer is incomplete; a followup
    continues it.
    """

    turn_id: str
    ordinal: int
    """The number of the turn in its conversation, from 1."""
    status: TurnStatus
    """Whether the turn waits for a worker, runs, waits for an approval, or has ended, and how."""
    text: str
    """What the person wrote."""
    attachments: tuple[FileView, ...] = ()
    created_at: str = ""
    texts: tuple[TextView, ...] = ()
    """What the agent wrote, in order."""
    steps: tuple[StepView, ...] = ()
    """The steps, in order."""
    plans: tuple[PlanSnapshot, ...] = ()
    """The plans of the turn."""
    files: tuple[FileView, ...] = ()
    """The files that the agent made."""
    citations: tuple[CitationView, ...] = ()
    """The sources that the answer cites, by number."""
    signals: tuple[SignalView, ...] = ()
    """Signals that were sent to the turn, with their states."""
    approvals: tuple[ApprovalView, ...] = ()
    """Approvals of tool calls, oldest first."""
    feedback: tuple[FeedbackView, ...] = ()
    """Feedback on the turn."""
    followups: tuple[str, ...] = ()
    """Questions that the person may ask next."""
    answer: str | None = None
    """The answer as the client shows it, in Markdown."""
    outcome: Outcome | None = None
    """How the turn ended; absent while it is open or when it failed."""
    cut_reason: CutReason | None = None
    """Why the answer stops before its end; absent when it does not."""
    error: Problem | None = None
    """What went wrong; absent when nothing did."""
    usage: TurnUsage | None = None
    """Tokens and cost of the model calls."""
    rounds: int = 0
    """How many rounds the turn had."""
    sealed_round: int = 0
    """The last round whose texts are committed, and those of all rounds before it."""
    step_rounds: tuple[StepRoundView, ...] = ()
    """The rounds of steps of a plan that have begun, in the order of their numbers."""
    elapsed_ms: int | None = None
    """From the start of the turn to its end, in milliseconds."""
    sources_used: tuple[int, ...] = ()
    """The numbers of the sources that were used."""


class StateView(ApiModel):
    """A conversation with its last turns, oldest first; `cursor` is the event id the state includes.

    `next_cursor` is the cursor of older turns, null or absent when there are none.
    """

    conversation: ConversationView
    """The conversation itself."""
    turns: tuple[TurnView, ...]
    """The last turns, oldest first."""
    cursor: str
    next_cursor: str | None = None
