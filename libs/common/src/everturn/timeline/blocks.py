"""Blocks: the immutable records a timeline is made of, with their bodies, their types, and the hash chain over their
stored bytes."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from everturn.core.errors import Problem
from everturn.core.ids import ApprovalId, CallId, SignalId, TurnId
from everturn.core.open_values import OpenEnum, report_unknown
from everturn.files.model import Artifact
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.sources import Citation
from everturn.timeline.turns import CutReason, Outcome, TurnUsage

GENESIS_HASH = "0" * 64
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Body(BaseModel):
    """Base of all bodies: frozen, and rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextBody(Body):
    """Base of the bodies whose readable text is `text` alone."""

    text: str


class UnknownBody(Body):
    """A body that only a newer version can parse; its bytes stay in the block."""


class TurnHeaderBody(Body):
    """The turn begins. `ordinal` counts from 1 in the conversation.

    `bundle_digest` is the version of the bundle, None if no registry stores it. `codec` is the reply format of the
    model; None is `channels`. `tools` are the selectable tools that were chosen for the turn; None if it offers all.
    `skills_revision` is that of the project's skills; None if it has none.
    """

    ordinal: int
    bundle_id: str | None = None
    bundle_digest: str | None = None
    codec: str | None = None
    tools: tuple[str, ...] | None = None
    skills_revision: int | None = None


class PromptBody(TextBody):
    """The person's message, verbatim."""


class AttachmentBody(Body):
    """A file that the person attached; its bytes are in the object store."""

    artifact: Artifact


class AttachmentTextBody(TextBody):
    """The beginning of a text attachment, for the model. `total_chars` counts the whole file, None if unknown."""

    filename: str
    total_chars: int | None


class SignalBody(TextBody):
    """A followup or a steer, as folded into the turn."""

    signal_id: SignalId
    attachments: tuple[Artifact, ...] = ()


class EventBody(Body):
    """An external event, such as a submitted form or an alert; `kind` is the kind of event.

    A `reactive` event asks the model to act on it; any other is only recorded. `credit` is the number of rounds that it
    adds to its turn.
    """

    signal_id: SignalId
    kind: str
    text: str
    payload: dict[str, Any] = {}
    reactive: bool = True
    credit: int = 0
    attachments: tuple[Artifact, ...] = ()


class RoundStartBody(Body):
    """A round begins; `limit` is the current maximum number of rounds of the turn. `lane` is the id of the step that
    the round belongs to, empty for a round of the turn itself: everything in the round belongs to its lane, except the
    turn's end and the messages that end it."""

    limit: int
    lane: str = ""


class PlannedStep(BaseModel):
    """One step of a workflow. `model_hint` names a role of models, `tools` are the tools that the step may need; None
    and empty leave the choice to the runtime."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    task: str
    depends_on: tuple[str, ...] = ()
    model_hint: str | None = None
    tools: tuple[str, ...] = ()


class WorkflowBody(Body):
    """What was decided about the steps of a turn. `steps` are all of them, with a `plan` and a `replan` only.

    `unplanned` means that the turn has no steps and runs as a plain loop.
    """

    decision: Literal["plan", "unplanned", "continue", "replan", "done"]
    steps: tuple[PlannedStep, ...] = ()
    reason: str = ""


class StepBody(TextBody):
    """A step begins; `text` is what its model is asked to do."""

    step: str


class StepResultBody(TextBody):
    """A step has ended; `text` is its result, or why there is none."""

    step: str
    status: Literal["ok", "failed", "cancelled"]


class SegmentBody(TextBody):
    """The workflow of an author gives the agent its task number `number`, from 1, in this turn; `text` is what the
    model is asked to do. The first one has no such block if it is the person's message."""

    number: int


class SegmentEndBody(Body):
    """The agent has done task `number`: the answer is the last one before this block, if there is one after the end of
    the task before. `error` says why there is none. The workflow went on with this result."""

    number: int
    outcome: Outcome | None = None
    cut_reason: CutReason | None = None
    error: str = ""


DurableKind = Literal["step", "feedback", "model", "file"]


class DurableStepBody(Body):
    """What an author's workflow has done once, by its kind and key. `begun` is recorded before an irreversible step
    begins; `done` has the result, plain JSON values, and `failed` the error."""

    kind: DurableKind = "step"
    key: str
    effect: Literal["pure", "idempotent", "irreversible"]
    state: Literal["begun", "done", "failed"]
    value: Any = None
    error: str = ""
    artifacts: tuple[Artifact, ...] = ()
    """The file that it has stored."""


class ChannelTextRecord(BaseModel):
    """A text that the workflow of an author has shown, or has got from a model, in a channel. `raw` is what was
    written, `shown` what clients saw if it differs; `marker` says where they show it, and is empty if they don't.

    `artifact` names what the text belongs to. `is_field` marks a field of the JSON of a channel, which is shown alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channel: str
    instance: int = 0
    raw: str
    shown: str | None = None
    complete: bool = True
    marker: str = ""
    format: str = "markdown"
    artifact: str | None = None
    is_field: bool = False


class ChannelsBody(Body):
    """The reply of a model to the workflow of an author, or texts that it has written itself, by the key of its call.

    `used_sources` are the sources that each channel cites, `meta` are further facts about the reply, and `followups`
    suggestions for the next message.
    """

    key: str
    texts: tuple[ChannelTextRecord, ...] = ()
    used_sources: dict[str, tuple[int, ...]] = {}
    followups: tuple[str, ...] = ()
    meta: dict[str, Any] = {}


class WorkflowEndBody(Body):
    """An author's workflow is over; `failed` means that it gave no answer itself. If the turn goes on, because a
    message came first, the agent alone ends it."""

    state: Literal["returned", "failed"]


class ThinkingBody(TextBody):
    """The model's thinking. `instance` distinguishes several thinking channels of one round."""

    instance: int = 0

    @property
    def is_reasoning(self) -> bool:
        """Whether the provider sent it beside the reply. It is for people: no request contains it."""
        return self.instance == REASONING_INSTANCE


REASONING_INSTANCE: Final = 1000
"""Reasoning that a provider reports separately is shown after all instances that a reply can open."""


class NotesBody(TextBody):
    """The notes of an action."""


class NoticeBody(TextBody):
    """A message from the runtime to the model, such as what to fix in its next reply. If it refuses a call,
    `missing_tool` is what the call named that the agent does not have, in ASCII, or `refused_tool` the tool whose
    arguments or program were wrong."""

    code: str
    missing_tool: str | None = None
    refused_tool: str | None = None


class RawDecisionBody(TextBody):
    """A reply that could not be used, verbatim."""

    code: str


class ToolCallBody(Body):
    """A tool is called. `shown` is the written text as clients saw it, if citations were replaced in it.

    A call that a program made has the call of its run as `parent`; the model learns of it from the run's result.
    """

    tool_id: str
    params: dict[str, Any]
    shown: str | None = None
    parent: str | None = None


class ToolCodeBody(TextBody):
    """The program of a call, verbatim."""


class StoredText(BaseModel):
    """A long text in the object store, as UTF-8. `sha256` is the hex digest of its bytes, `bytes` their number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    object_key: str
    sha256: str
    chars: int
    bytes: int


class ToolResultBody(Body):
    """The result of a call. `text` is what the model reads; `ambiguous` means that the call may have taken effect.

    If `whole` is set, `text` is a preview of it. `untrusted` marks text of unknown origin; `parent` is as in the call.
    """

    tool_id: str
    status: Literal["ok", "error", "ambiguous", "cancelled"]
    text: str
    artifacts: tuple[Artifact, ...] = ()
    data: dict[str, Any] | None = None
    duration_ms: int = 0
    whole: StoredText | None = None
    untrusted: bool = False
    parent: str | None = None


class ApprovalRequestBody(Body):
    """A call needs a person's approval. `params` are shown to the person, without secrets; `cut` means that some are
    left out. `args_hash` covers the tool and the exact parameters. `expires_at` is by the database's clock.
    `explanation` gives the person the reason; `addresses` are the web addresses to approve, in canonical form. With
    `connect_url` the person connects an account there instead of approving the call. `details` say what the call would
    do, in lines of plain text; `details_digest` identifies that, so that the call does nothing else.
    """

    approval_id: ApprovalId
    tool_id: str
    params: dict[str, Any]
    args_hash: str
    expires_at: str
    cut: bool = False
    explanation: str = ""
    addresses: tuple[str, ...] = ()
    connect_url: str = Field(default="", exclude_if=lambda url: not url)
    details: str = Field(default="", exclude_if=lambda text: not text)
    details_digest: str = Field(default="", exclude_if=lambda digest: not digest)


class ApprovalOutcomeBody(Body):
    """The outcome of an approval. `signal_id` and `reason` are those of the person's answer."""

    approval_id: ApprovalId
    state: Literal["approved", "denied", "expired", "withdrawn"]
    reason: str = ""
    signal_id: SignalId | None = None


class PlanBody(Body):
    """A snapshot of a plan after a change."""

    plan: PlanSnapshot


class PlanAckBody(TextBody):
    """The step marks from notes, for a person to read."""

    plan_id: str


class CompletionBody(TextBody):
    """An answer. `text` is the model's, `shown` is what clients saw if it differs; `instance` is as in the deltas.

    `sources_used` are the numbers that it cites, `citations` the sources as they were at that time.
    """

    shown: str | None = None
    instance: int = 0
    followups: tuple[str, ...] = ()
    sources_used: tuple[int, ...] = ()
    citations: tuple[Citation, ...] = ()


class AttemptBody(TextBody):
    """An answer that does not end the turn, with the reason: it was interrupted, or waits for the calls in the same
    reply."""

    shown: str | None = None
    instance: int = 0
    reason: str
    followups: tuple[str, ...] = ()
    sources_used: tuple[int, ...] = ()
    cut_reason: CutReason | None = None

    @property
    def is_draft(self) -> bool:
        """Whether nobody was shown it, because a synthesis writes the answer."""
        return self.shown == ""


class SummaryBody(TextBody):
    """The working summary of a turn, hidden from the person."""


class DeferralBody(TextBody):
    """Why the previous answer does not end the turn, and what to do now."""

    reason: str


class AnchorBody(TextBody):
    """An internal memory anchor: a short line that the model leaves for later turns.

    `tags` say what it notes: P a preference of the user, D a decision, S a stable fact, A something achieved, K a key
    artifact.
    """

    tags: tuple[str, ...] = ()
    path: str | None = None


class HideBody(Body):
    """Blocks with one of `refs` and a `seq` up to `through_seq` are shown as `replacement` from here on."""

    refs: tuple[str, ...]
    through_seq: int
    replacement: str


class CheckoutBody(Body):
    """What the turn copied into its editable workspace. `artifacts` are the copies, `sources` their refs, one for each.
    `removed` lists the files that a replacing checkout removed from the workspace, or that the turn deleted."""

    mode: Literal["replace", "overlay"]
    sources: tuple[str, ...]
    artifacts: tuple[Artifact, ...]
    removed: tuple[Artifact, ...] = ()


class PlanHistoryBody(Body):
    """The newest snapshots of plans whose own blocks are no longer shown, including the current plan.

    The plan that changed last is last. A plan's own block after the summarized range takes precedence over this one.
    """

    plans: tuple[PlanSnapshot, ...]


class KeptText(BaseModel):
    """A text that outlives its block: an anchor, a prompt, a signal, an event, or an earlier summary. `kind` is its
    block type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str
    kind: str
    text: str


class RangeSummaryBody(Body):
    """A summary of the blocks `first_seq` to `last_seq`. It preserves what readers would need from them.

    `history` covers whole ended turns; `turn` covers the beginning of the turn that contains it. A later summary of the
    same scope includes the earlier one. `turn_ids` are those of the range that no earlier summary listed.
    `by` says whether a model or a rule wrote the text. Tokens are estimates of the whole request, before and after.
    """

    scope: Literal["history", "turn"]
    first_seq: int
    last_seq: int
    turn_ids: tuple[str, ...]
    text: str
    kept: tuple[KeptText, ...] = ()
    before_tokens: int
    after_tokens: int
    by: Literal["model", "rules"]


class SystemMessageBody(TextBody):
    """The runtime changed what the model sees. `cache_ttl_pruned`: turns that begin before `recent_from_seq` are shown
    as cards or rows, those before `intact_from_seq` without their bulky results."""

    kind: Literal["cache_ttl_pruned"]
    recent_from_seq: int
    intact_from_seq: int


class TitleBody(Body):
    """The conversation's title was set."""

    title: str


class FeedbackBody(TextBody):
    """A person's or program's rating of an earlier turn, shown to the model at the start of the next turn."""

    turn_id: str
    origin: Literal["user", "machine"]
    reaction: str | None


class ExitBody(Body):
    """The terminal block of a turn. Exactly one of `outcome` and `error` is set.

    `cut_reason` is set when the answer is incomplete: always with the outcome `cut`, sometimes with `capped`
    or `stopped`.
    """

    outcome: Outcome | None = None
    cut_reason: CutReason | None = None
    error: Problem | None = None
    rounds: int
    usage: TurnUsage
    elapsed_ms: int


class BlockType(OpenEnum):
    """What a block records. UNKNOWN is a type that a newer version has written."""

    TURN_HEADER = "turn.header"
    USER_PROMPT = "user.prompt"
    ATTACHMENT_META = "user.attachment.meta"
    ATTACHMENT_TEXT = "user.attachment.text"
    USER_FOLLOWUP = "user.followup"
    USER_STEER = "user.steer"
    EXTERNAL_EVENT = "event.external"
    STAGE_GATE = "stage.gate"
    ROUND_START = "react.round.start"
    THINKING = "react.thinking"
    NOTES = "react.notes"
    ANCHOR = "react.note"
    NOTICE = "react.notice"
    DECISION_RAW = "react.decision.raw"
    TOOL_CALL = "react.tool.call"
    TOOL_CODE = "react.tool.code"
    TOOL_RESULT = "react.tool.result"
    APPROVAL_REQUEST = "approval.request"
    APPROVAL_OUTCOME = "approval.outcome"
    PLAN = "react.plan"
    PLAN_ACK = "react.plan.ack"
    PLAN_HISTORY = "react.plan.history"
    WORKFLOW = "react.workflow"
    STEP = "react.step"
    STEP_RESULT = "react.step.result"
    SEGMENT = "react.segment"
    SEGMENT_END = "react.segment.end"
    DURABLE_STEP = "workflow.step"
    CHANNELS = "workflow.channels"
    EMITTED = "workflow.emitted"
    WORKFLOW_END = "workflow.end"
    HIDE = "react.hide"
    CHECKOUT = "react.workspace.checkout"
    COMPLETION = "assistant.completion"
    COMPLETION_ATTEMPT = "assistant.completion.attempt"
    DEFERRAL = "assistant.completion.attempt.outcome"
    WORKING_SUMMARY = "conv.working.summary"
    RANGE_SUMMARY = "conv.range.summary"
    SYSTEM_MESSAGE = "system.message"
    FEEDBACK = "turn.feedback"
    EXIT = "react.exit"
    UNKNOWN = "unknown"

    @property
    def traits(self) -> "BlockTraits":
        """What holds for all blocks of this type."""
        return _TRAITS[self]


class Author(StrEnum):
    """The author of a block."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    RUNTIME = "runtime"


class Shown(StrEnum):
    """Whether the model sees blocks of a type, and how it sees them once their turn is old (pruned)."""

    NEVER = "never"
    """Needed only by clients and the runtime; EXIT alone is shown, as a row in an old turn."""
    ALWAYS = "always"
    """In full, also in an old turn."""
    ROW_WHEN_OLD = "row_when_old"
    """One line with the ref."""
    CARD_WHEN_OLD = "card_when_old"
    """Its beginning; the ROW_WHEN_OLD blocks of the turn are omitted then."""
    GONE_WHEN_OLD = "gone_when_old"
    """Not at all; the turn's index still lists it."""


class IndexSection(StrEnum):
    """The section of a turn's index that lists a block. Calls, results and files have sections of their own."""

    SUMMARIES = "summaries"
    MESSAGES = "messages"
    EVENTS = "events"
    NOTES = "notes"


@dataclass(frozen=True, slots=True)
class BlockTraits:
    """What holds for all blocks of one type. `is_decision`: such a block shows that the decision of its round is
    committed."""

    body: type[Body]
    author: Author
    shown: Shown
    section: IndexSection | None = None
    is_decision: bool = False


_TRAITS: dict[BlockType, BlockTraits] = {
    BlockType.TURN_HEADER: BlockTraits(TurnHeaderBody, Author.RUNTIME, Shown.ALWAYS),
    BlockType.USER_PROMPT: BlockTraits(PromptBody, Author.USER, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES),
    BlockType.ATTACHMENT_META: BlockTraits(AttachmentBody, Author.USER, Shown.ROW_WHEN_OLD),
    BlockType.ATTACHMENT_TEXT: BlockTraits(AttachmentTextBody, Author.USER, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES),
    BlockType.USER_FOLLOWUP: BlockTraits(SignalBody, Author.USER, Shown.ALWAYS, IndexSection.EVENTS),
    BlockType.USER_STEER: BlockTraits(SignalBody, Author.USER, Shown.ALWAYS, IndexSection.EVENTS),
    BlockType.EXTERNAL_EVENT: BlockTraits(EventBody, Author.USER, Shown.ALWAYS, IndexSection.EVENTS),
    BlockType.STAGE_GATE: BlockTraits(TitleBody, Author.RUNTIME, Shown.NEVER),
    BlockType.ROUND_START: BlockTraits(RoundStartBody, Author.RUNTIME, Shown.NEVER),
    BlockType.THINKING: BlockTraits(
        ThinkingBody, Author.ASSISTANT, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.NOTES: BlockTraits(
        NotesBody, Author.ASSISTANT, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.ANCHOR: BlockTraits(AnchorBody, Author.ASSISTANT, Shown.ALWAYS, IndexSection.NOTES),
    BlockType.NOTICE: BlockTraits(
        NoticeBody, Author.RUNTIME, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.DECISION_RAW: BlockTraits(
        RawDecisionBody, Author.ASSISTANT, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.TOOL_CALL: BlockTraits(ToolCallBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, is_decision=True),
    BlockType.TOOL_CODE: BlockTraits(ToolCodeBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, IndexSection.NOTES),
    BlockType.TOOL_RESULT: BlockTraits(ToolResultBody, Author.TOOL, Shown.ROW_WHEN_OLD),
    BlockType.APPROVAL_REQUEST: BlockTraits(ApprovalRequestBody, Author.RUNTIME, Shown.NEVER),
    BlockType.APPROVAL_OUTCOME: BlockTraits(ApprovalOutcomeBody, Author.RUNTIME, Shown.NEVER),
    BlockType.PLAN: BlockTraits(PlanBody, Author.TOOL, Shown.ROW_WHEN_OLD, IndexSection.NOTES),
    BlockType.PLAN_ACK: BlockTraits(PlanAckBody, Author.ASSISTANT, Shown.NEVER, IndexSection.NOTES),
    BlockType.PLAN_HISTORY: BlockTraits(PlanHistoryBody, Author.RUNTIME, Shown.ALWAYS, IndexSection.NOTES),
    BlockType.WORKFLOW: BlockTraits(WorkflowBody, Author.RUNTIME, Shown.NEVER, is_decision=True),
    BlockType.STEP: BlockTraits(StepBody, Author.RUNTIME, Shown.ROW_WHEN_OLD, IndexSection.NOTES),
    BlockType.STEP_RESULT: BlockTraits(
        StepResultBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.SEGMENT: BlockTraits(SegmentBody, Author.RUNTIME, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES),
    BlockType.SEGMENT_END: BlockTraits(SegmentEndBody, Author.RUNTIME, Shown.NEVER),
    BlockType.DURABLE_STEP: BlockTraits(DurableStepBody, Author.RUNTIME, Shown.NEVER),
    BlockType.CHANNELS: BlockTraits(ChannelsBody, Author.ASSISTANT, Shown.NEVER, is_decision=True),
    BlockType.EMITTED: BlockTraits(ChannelsBody, Author.ASSISTANT, Shown.NEVER),
    BlockType.WORKFLOW_END: BlockTraits(WorkflowEndBody, Author.RUNTIME, Shown.NEVER),
    BlockType.HIDE: BlockTraits(HideBody, Author.TOOL, Shown.NEVER),
    BlockType.CHECKOUT: BlockTraits(CheckoutBody, Author.TOOL, Shown.NEVER),
    BlockType.COMPLETION: BlockTraits(
        CompletionBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES, is_decision=True
    ),
    BlockType.COMPLETION_ATTEMPT: BlockTraits(
        AttemptBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES, is_decision=True
    ),
    BlockType.DEFERRAL: BlockTraits(DeferralBody, Author.RUNTIME, Shown.GONE_WHEN_OLD, IndexSection.EVENTS),
    BlockType.WORKING_SUMMARY: BlockTraits(SummaryBody, Author.ASSISTANT, Shown.CARD_WHEN_OLD, IndexSection.SUMMARIES),
    BlockType.RANGE_SUMMARY: BlockTraits(RangeSummaryBody, Author.RUNTIME, Shown.ALWAYS, IndexSection.SUMMARIES),
    BlockType.SYSTEM_MESSAGE: BlockTraits(SystemMessageBody, Author.RUNTIME, Shown.ALWAYS),
    BlockType.FEEDBACK: BlockTraits(FeedbackBody, Author.USER, Shown.ROW_WHEN_OLD, IndexSection.EVENTS),
    BlockType.EXIT: BlockTraits(ExitBody, Author.RUNTIME, Shown.NEVER),
    BlockType.UNKNOWN: BlockTraits(UnknownBody, Author.RUNTIME, Shown.NEVER),
}
"""The model reads a plan mark in the snapshot after it, an approval in the result of its call, and a workflow in its
steps. It sees only the newest prune notice, the newest history summary, and each turn's newest checkpoint."""


@dataclass(frozen=True, slots=True)
class BlockDraft:
    """A block without a position. Times are ISO 8601 in UTC; `ts_first` is when the first piece of a streamed block
    arrived."""

    turn_id: TurnId
    round: int
    type: BlockType
    ref: str
    body: Body
    ts: str
    ts_first: str | None = None
    call_id: CallId | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One stored record. `seq` counts from 1 in the conversation; the hash also covers the one before it.

    `stored_type` is the type as written, if this version does not know it.
    """

    seq: int
    turn_id: TurnId
    round: int
    type: BlockType
    ref: str
    body: Body
    body_json: str
    ts: str
    ts_first: str | None
    call_id: CallId | None
    hash: str
    stored_type: str | None = None

    @property
    def type_name(self) -> str:
        """The type as written, which the hash covers."""
        return self.stored_type or self.type.value

    @property
    def author(self) -> Author:
        return self.type.traits.author


def chain_blocks(drafts: Iterable[BlockDraft], *, next_seq: int, last_hash: str) -> tuple[Block, ...]:
    """Give drafts their positions after `last_hash`; the first gets `next_seq`."""
    chained: list[Block] = []
    for seq, draft in enumerate(drafts, start=next_seq):
        body_json = canonical_json(draft.body)
        last_hash = _link(last_hash, seq, draft, body_json)
        chained.append(
            Block(
                seq=seq,
                turn_id=draft.turn_id,
                round=draft.round,
                type=draft.type,
                ref=draft.ref,
                body=draft.body,
                body_json=body_json,
                ts=draft.ts,
                ts_first=draft.ts_first,
                call_id=draft.call_id,
                hash=last_hash,
            )
        )
    return tuple(chained)


def parse_body(kind: BlockType, body_json: str) -> Body:
    """Parse a stored body. Raises pydantic.ValidationError when it does not match its type.

    Ignores fields of a newer version. A body with an enum value that only a newer version knows becomes an UnknownBody:
    skipping one block is better than failing its turn.
    """
    try:
        return kind.traits.body.model_validate_json(body_json, extra="ignore")
    except ValidationError as error:
        if {each["type"] for each in error.errors(include_url=False, include_input=False)} != {"literal_error"}:
            raise
        report_unknown(f"{kind.name} body", str(error.errors(include_url=False)[0]["input"]))
        return UnknownBody()


def canonical_json(body: Body) -> str:
    """The canonical JSON text of a body: keys sorted, no whitespace, default values left out."""
    return _CANONICAL.encode(body.model_dump(mode="json", exclude_defaults=True))


def link_hash(
    last_hash: str, *, seq: int, turn_id: str, round: int, type: str, ref: str, call_id: str | None, ts: str, body: str
) -> str:
    """The hash of a stored block: over the previous block's hash and all stored fields except `ts_first`."""
    fields = (last_hash, str(seq), turn_id, str(round), type, ref, call_id or "", ts, body)
    return hashlib.sha256("\x1f".join(fields).encode()).hexdigest()


def _link(last_hash: str, seq: int, block: BlockDraft | Block, body_json: str) -> str:
    return link_hash(
        last_hash,
        seq=seq,
        turn_id=block.turn_id,
        round=block.round,
        type=block.type_name if isinstance(block, Block) else block.type.value,
        ref=block.ref,
        call_id=block.call_id,
        ts=block.ts,
        body=body_json,
    )
