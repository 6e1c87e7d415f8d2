"""Everything a client can receive: one small class for each event type, and the envelope around it."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter

from everturn.conversations.model import StateName
from everturn.core.api_model import ApiModel
from everturn.core.errors import Problem
from everturn.core.open_values import or_else
from everturn.events.views import (
    ApprovalState,
    CitationView,
    EventView,
    FileView,
    Outcome,
    SignalKind,
    SignalState,
    StateView,
    StepStatus,
    TextFormat,
    TurnView,
)
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.turns import CutReason, TurnUsage

_FIELDS = TypeAdapter(dict[str, Any])


class Ready(ApiModel):
    """The stream is open; `cursor` is its first position."""

    type: Literal["ready"] = "ready"
    cursor: str | None = None


class ConvStatus(ApiModel):
    """The conversation's state changed. `position` is the number of turns ahead of a queued one, 0 if it is next.

    Sent again while the position changes, at most once a second; with `position_more` the real number is larger.
    """

    type: Literal["conv.status"] = "conv.status"
    state: StateName
    """What the conversation is doing: nothing, waiting for a worker, running a turn, or waiting for an approval;
    `error` if its last turn failed."""
    turn_id: str | None = None
    position: int | None = None
    """How many turns are ahead of a queued turn, 0 if it is next."""
    position_more: bool | None = None


class ConvTitle(ApiModel):
    """The conversation's title was set."""

    type: Literal["conv.title"] = "conv.title"
    title: str
    """The new title."""


class ChatStart(ApiModel):
    """A turn started."""

    type: Literal["chat.start"] = "chat.start"
    turn_id: str
    ordinal: int
    """The number of the turn in its conversation, from 1."""
    text: str
    """What the person wrote."""
    attachments: tuple[FileView, ...] = ()
    created_at: str = ""


class ChatStep(ApiModel):
    """A step began or ended. `step` is its key in the turn. Only its first event has `code`, as in StepView."""

    type: Literal["chat.step"] = "chat.step"
    step: str
    """The id of the step."""
    status: StepStatus
    """Whether the step still runs, has completed, or has failed."""
    title: str
    """What the step does, for display: the name of the program, or the id of the tool."""
    tool_id: str | None = None
    call_id: str | None = None
    ref: str | None = None
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


class ChatDelta(ApiModel):
    """More text of one channel instance. `index` counts the model's pieces of that instance from 0, and is that of the
    first if an event holds several; `completed` ends it."""

    type: Literal["chat.delta"] = "chat.delta"
    channel: str
    """What the text is: thinking, a note, a file that is written, or the answer."""
    instance: int
    """The number of the text among those of its channel and round."""
    index: int
    """The position of this piece of text in its channel instance, from 0."""
    text: str
    """The next piece of the text."""
    completed: bool = False
    """Whether the text is complete."""
    marker: str
    """Where the client shows the text: with the thinking, in the conversation, on the canvas, or as the answer."""
    format: TextFormat = "markdown"
    """The format of the text."""
    artifact: str | None = None
    """The file that the text is written into."""


class ChatPlan(ApiModel):
    """A plan changed; the snapshot replaces the one with the same id."""

    type: Literal["chat.plan"] = "chat.plan"
    plan: PlanSnapshot
    """The plan as it is now."""


class ChatFiles(ApiModel):
    """New files for the person."""

    type: Literal["chat.files"] = "chat.files"
    files: tuple[FileView, ...]
    """The files that the agent made."""


class ChatCitations(ApiModel):
    """Sources that the answer cites, without images."""

    type: Literal["chat.citations"] = "chat.citations"
    sources: tuple[CitationView, ...]
    """The sources, by number."""


class ChatFollowups(ApiModel):
    """Suggested follow-up messages."""

    type: Literal["chat.followups"] = "chat.followups"
    items: tuple[str, ...]
    """Questions that the person may ask next."""


class ChatCompaction(ApiModel):
    """Older blocks are summarized so that the model's request fits. Token counts are estimates of the whole request.

    `started` is followed by exactly one `completed` or `skipped`. `reason` is a token for why it began or was skipped.
    """

    type: Literal["chat.compaction"] = "chat.compaction"
    status: Annotated[Literal["started", "completed", "skipped"], or_else("compaction status", "skipped")]
    """Whether summarizing has begun, has made the request smaller, or was given up."""
    reason: str
    """A token for why it began or was skipped, such as `soft` or `nothing_to_save`."""
    before_tokens: int
    """Tokens of the model's input before."""
    after_tokens: int | None = None
    """Tokens of the model's input afterwards."""
    original_messages: int | None = None
    """How many entries of the conversation the model saw before; set when it has completed."""
    kept_messages: int | None = None
    """How many it sees afterwards, including the summary; set when it has completed."""


class ChatPhase(ApiModel):
    """What a turn does while nothing else can be shown. It applies until the turn's next event of another type.

    `selecting_tools`: a model chooses which of `total_tools` the turn can use. `model_called`: a call of the model
    begins. `model_thought`: its thinking has ended, because the answer begins or the reply has ended; `thinking` is all
    of it. `model_waiting`: the model has been silent for `waited_ms`; repeated every few seconds. `model_retrying`: a
    call failed because of `reason` and is repeated in `retry_in_ms`; `attempt` of `max_attempts` is the next one.
    `model_fallback`: the fallback model is called instead. `model_replying`: the model writes something that is not
    shown yet. It is not stored, so a snapshot does not contain it.
    """

    type: Literal["chat.phase"] = "chat.phase"
    phase: Annotated[
        Literal[
            "selecting_tools",
            "model_called",
            "model_thought",
            "model_waiting",
            "model_retrying",
            "model_fallback",
            "model_replying",
        ],
        or_else("phase", "model_replying"),
    ]
    """What the turn does or waits for."""
    total_tools: int | None = None
    """How many tools there are to choose from."""
    thinking: str | None = None
    """All that the model thought in this call, at most 20,000 characters; empty if it did not think."""
    waited_ms: int | None = None
    """How long it has waited, in milliseconds."""
    retry_in_ms: int | None = None
    """When the next attempt begins, in milliseconds from now."""
    attempt: int | None = None
    """The number of this attempt, from 1."""
    max_attempts: int | None = None
    """The maximum number of attempts."""
    reason: str | None = Field(default=None, max_length=60)
    """A token for why the call failed, such as `rate_limited`; absent while the model is only waited for."""
    step_id: str | None = None
    """The step of a plan that the phase belongs to; absent outside of such steps."""


class ChatTool(ApiModel):
    """Progress of a running tool. It is not stored: clients that connect later see only the call's step.

    `kind` is `progress` (`text` says what is happening now), `message` (`text` is for the person), or `data` (`data` is
    for a client that knows the tool).
    """

    type: Literal["chat.tool"] = "chat.tool"
    call_id: str
    tool_id: str
    kind: Annotated[Literal["progress", "message", "data"], or_else("tool news", "data")]
    """Whom the news is for: `progress` and `message` are for people, `data` is for clients that know the tool."""
    text: str = Field(default="", max_length=2_000)
    """What is happening now, or the message to the person."""
    data: dict[str, Any] | None = None
    """Values for clients that know the tool; only with the kind `data`."""


class ChatSignal(ApiModel):
    """The state of a signal changed."""

    type: Literal["chat.signal"] = "chat.signal"
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


class ChatApproval(ApiModel):
    """A call needs a person's approval, or the approval was settled. `state` changes once, from `pending`."""

    type: Literal["chat.approval"] = "chat.approval"
    approval_id: str
    call_id: str
    tool_id: str
    params: dict[str, Any]
    cut: bool = False
    """Whether `params` are incomplete because they are too long."""
    state: ApprovalState
    """What the person decided: `pending` until then; `withdrawn` if the answer is no longer needed."""
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


class ChatRewind(ApiModel):
    """The committed state of a turn. It replaces the client's copy, except for receipts that it does not include."""

    type: Literal["chat.rewind"] = "chat.rewind"
    turn: TurnView
    """The turn as it is now."""


class ChatComplete(ApiModel):
    """The turn ended without an error. `cut_reason` is set when the answer is incomplete.

    It is always set with the outcome `cut`, and with `capped` when the closing answer is incomplete too.
    """

    type: Literal["chat.complete"] = "chat.complete"
    outcome: Outcome
    """How the turn ended."""
    cut_reason: CutReason | None = None
    """Why the answer stops before its end; absent when it does not."""
    answer: str | None = None
    """The answer as the client shows it, in Markdown."""
    followups: tuple[str, ...] = ()
    """Questions that the person may ask next."""
    rounds: int
    """How many rounds the turn had."""
    usage: TurnUsage
    """Tokens and cost of the model calls."""
    elapsed_ms: int
    """From the start of the turn to its end, in milliseconds."""
    sources_used: tuple[int, ...] = ()
    """The numbers of the sources that were used."""


class ChatError(ApiModel):
    """The turn failed; its work so far is kept. The counts are as in ChatComplete."""

    type: Literal["chat.error"] = "chat.error"
    problem: Problem
    """What went wrong."""
    rounds: int
    """How many rounds the turn had."""
    usage: TurnUsage
    """Tokens and cost of the model calls."""
    elapsed_ms: int
    """From the start of the turn to its end, in milliseconds."""


class StreamSnapshot(ApiModel):
    """The initial state. It replaces the client's state of the conversation.

    It has the last 20 turns, but at most 1 MiB of stored text unless the newest turn alone is larger; `next_cursor` of
    the state leads to older turns over REST.
    """

    type: Literal["stream.snapshot"] = "stream.snapshot"
    state: StateView
    """The conversation with its last turns."""


class StreamGap(ApiModel):
    """Events between `after` and `oldest` are no longer available; a snapshot follows."""

    type: Literal["stream.gap"] = "stream.gap"
    after: str
    """The event id that the client sent."""
    oldest: str | None = None
    """The oldest event id that is still available."""


class ServerShutdown(ApiModel):
    """This server is shutting down; reconnect after `retry_ms`."""

    type: Literal["server.shutdown"] = "server.shutdown"
    retry_ms: int
    """How long to wait before connecting again, in milliseconds."""


AnyEvent = (
    Ready
    | ConvStatus
    | ConvTitle
    | ChatStart
    | ChatStep
    | ChatDelta
    | ChatPlan
    | ChatFiles
    | ChatCitations
    | ChatFollowups
    | ChatCompaction
    | ChatPhase
    | ChatTool
    | ChatSignal
    | ChatApproval
    | ChatRewind
    | ChatComplete
    | ChatError
    | StreamSnapshot
    | StreamGap
    | ServerShutdown
)
TERMINAL_TYPES = frozenset(kind.model_fields["type"].default for kind in (ChatComplete, ChatError))
"""The types of the events with which a turn ends."""
EVENT_TYPES: tuple[str, ...] = tuple(kind.model_fields["type"].default for kind in get_args(AnyEvent))


class Envelope(ApiModel):
    """One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC."""

    id: str | None = None
    """The event's id, to continue after it; absent for what is not kept."""
    type: str
    """The type of the event."""
    ts: str
    conversation_id: str
    turn_id: str | None = None
    round: int | None = None
    data: Annotated[AnyEvent, Field(discriminator="type")]
    """The event's own fields, by its type."""


_ENVELOPE = TypeAdapter(Envelope)


def encode_envelope(envelope: Envelope) -> bytes:
    """One line of JSON. `type` is in the envelope only, and absent fields are left out."""
    return envelope.model_dump_json(exclude_none=True, exclude={"data": {"type"}}).encode()


def parse_envelope(encoded: bytes | str) -> Envelope:
    """Parse an encoded envelope. Raises pydantic.ValidationError when it is invalid or its type is unknown.

    Ignores fields that only a newer server knows.
    """
    fields = _FIELDS.validate_json(encoded)
    data = fields.get("data")
    if isinstance(data, dict):
        fields["data"] = {**data, "type": fields.get("type")}
    return _ENVELOPE.validate_python(fields, extra="ignore")


def event_name(event_type: str) -> str:
    """The SSE event name and Socket.IO route of a type: `chat.delta` is `chat_delta`."""
    return event_type.replace(".", "_")
