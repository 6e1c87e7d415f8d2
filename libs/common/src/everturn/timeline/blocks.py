"""Blocks: the immutable records a timeline is made of, their types, and the hash chain over their stored bytes."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from pydantic import ValidationError

from everturn.core.ids import CallId, TurnId
from everturn.core.open_values import OpenEnum, report_unknown
from everturn.timeline import bodies
from everturn.timeline.bodies import Body

GENESIS_HASH = "0" * 64


class BlockType(OpenEnum):
    """What a block records; the names are those of the design. UNKNOWN is a type that a newer version has written."""

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


class Author(StrEnum):
    """The author of a block."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    RUNTIME = "runtime"


BODY_OF: dict[BlockType, type[Body]] = {
    BlockType.TURN_HEADER: bodies.TurnHeaderBody,
    BlockType.USER_PROMPT: bodies.PromptBody,
    BlockType.ATTACHMENT_META: bodies.AttachmentBody,
    BlockType.ATTACHMENT_TEXT: bodies.AttachmentTextBody,
    BlockType.USER_FOLLOWUP: bodies.SignalBody,
    BlockType.USER_STEER: bodies.SignalBody,
    BlockType.EXTERNAL_EVENT: bodies.EventBody,
    BlockType.STAGE_GATE: bodies.TitleBody,
    BlockType.ROUND_START: bodies.RoundStartBody,
    BlockType.THINKING: bodies.ThinkingBody,
    BlockType.NOTES: bodies.NotesBody,
    BlockType.ANCHOR: bodies.AnchorBody,
    BlockType.NOTICE: bodies.NoticeBody,
    BlockType.DECISION_RAW: bodies.RawDecisionBody,
    BlockType.TOOL_CALL: bodies.ToolCallBody,
    BlockType.TOOL_CODE: bodies.ToolCodeBody,
    BlockType.TOOL_RESULT: bodies.ToolResultBody,
    BlockType.APPROVAL_REQUEST: bodies.ApprovalRequestBody,
    BlockType.APPROVAL_OUTCOME: bodies.ApprovalOutcomeBody,
    BlockType.PLAN: bodies.PlanBody,
    BlockType.PLAN_ACK: bodies.PlanAckBody,
    BlockType.PLAN_HISTORY: bodies.PlanHistoryBody,
    BlockType.HIDE: bodies.HideBody,
    BlockType.CHECKOUT: bodies.CheckoutBody,
    BlockType.COMPLETION: bodies.CompletionBody,
    BlockType.COMPLETION_ATTEMPT: bodies.AttemptBody,
    BlockType.DEFERRAL: bodies.DeferralBody,
    BlockType.WORKING_SUMMARY: bodies.SummaryBody,
    BlockType.RANGE_SUMMARY: bodies.RangeSummaryBody,
    BlockType.SYSTEM_MESSAGE: bodies.SystemMessageBody,
    BlockType.FEEDBACK: bodies.FeedbackBody,
    BlockType.EXIT: bodies.ExitBody,
    BlockType.UNKNOWN: bodies.UnknownBody,
}


def author_of(kind: BlockType) -> Author:
    """The author of a block of this type."""
    match kind:
        case (
            BlockType.USER_PROMPT
            | BlockType.ATTACHMENT_META
            | BlockType.ATTACHMENT_TEXT
            | BlockType.USER_FOLLOWUP
            | BlockType.USER_STEER
            | BlockType.EXTERNAL_EVENT
            | BlockType.FEEDBACK
        ):
            return Author.USER
        case (
            BlockType.THINKING
            | BlockType.NOTES
            | BlockType.ANCHOR
            | BlockType.DECISION_RAW
            | BlockType.TOOL_CALL
            | BlockType.TOOL_CODE
            | BlockType.PLAN_ACK
            | BlockType.COMPLETION
            | BlockType.COMPLETION_ATTEMPT
            | BlockType.WORKING_SUMMARY
        ):
            return Author.ASSISTANT
        case BlockType.TOOL_RESULT | BlockType.PLAN | BlockType.HIDE | BlockType.CHECKOUT:
            return Author.TOOL
        case (
            BlockType.TURN_HEADER
            | BlockType.STAGE_GATE
            | BlockType.ROUND_START
            | BlockType.NOTICE
            | BlockType.PLAN_HISTORY
            | BlockType.DEFERRAL
            | BlockType.RANGE_SUMMARY
            | BlockType.SYSTEM_MESSAGE
            | BlockType.APPROVAL_REQUEST
            | BlockType.APPROVAL_OUTCOME
            | BlockType.EXIT
            | BlockType.UNKNOWN
        ):
            return Author.RUNTIME
        case _:
            assert_never(kind)


@dataclass(frozen=True, slots=True)
class BlockDraft:
    """A block without a position. Times are ISO 8601 in UTC; `ts_first` is when a streamed block was first seen."""

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
    """One stored record. `seq` counts from 1 in the conversation; the hash covers the bytes of `body_json`.

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
        return author_of(self.type)


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
    """Parse a stored body. Raises pydantic.ValidationError when it is not of its type.

    Ignores fields of a newer version. A body with an enum value that only a newer version knows becomes an UnknownBody:
    skipping one block is better than failing its turn.
    """
    try:
        return BODY_OF[kind].model_validate_json(body_json, extra="ignore")
    except ValidationError as error:
        if {each["type"] for each in error.errors(include_url=False, include_input=False)} != {"literal_error"}:
            raise
        report_unknown(f"{kind.name} body", str(error.errors(include_url=False)[0]["input"]))
        return bodies.UnknownBody()


def canonical_json(body: Body) -> str:
    """The canonical JSON text of a body: keys sorted, no blanks, default values left out."""
    return json.dumps(
        body.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


def link_hash(
    last_hash: str, *, seq: int, turn_id: str, round: int, type: str, ref: str, call_id: str | None, ts: str, body: str
) -> str:
    """The hash of a stored block: over the previous block's hash, its position, and the bytes of its body."""
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
