"""Blocks: the immutable records a timeline is made of, their types, and the hash chain over their stored bytes."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ValidationError

from everturn.core.ids import CallId, TurnId
from everturn.core.open_values import OpenEnum, report_unknown
from everturn.timeline import bodies
from everturn.timeline.bodies import Body

GENESIS_HASH = "0" * 64
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
    """Whether the model sees blocks of a type, and how it sees them in an old turn, which is pruned."""

    NEVER = "never"
    """Needed only by clients and the runtime."""
    ALWAYS = "always"
    """In full, also in an old turn."""
    ROW_WHEN_OLD = "row_when_old"
    """One line with the ref."""
    CARD_WHEN_OLD = "card_when_old"
    """Its beginning, in place of the whole turn."""
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
    """What holds for all blocks of one type. `is_decision`: only a committed decision (C1 or C3) can write them."""

    body: type[Body]
    author: Author
    shown: Shown
    section: IndexSection | None = None
    is_decision: bool = False


_TRAITS: dict[BlockType, BlockTraits] = {
    BlockType.TURN_HEADER: BlockTraits(bodies.TurnHeaderBody, Author.RUNTIME, Shown.ALWAYS),
    BlockType.USER_PROMPT: BlockTraits(bodies.PromptBody, Author.USER, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES),
    BlockType.ATTACHMENT_META: BlockTraits(bodies.AttachmentBody, Author.USER, Shown.ROW_WHEN_OLD),
    BlockType.ATTACHMENT_TEXT: BlockTraits(
        bodies.AttachmentTextBody, Author.USER, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES
    ),
    BlockType.USER_FOLLOWUP: BlockTraits(bodies.SignalBody, Author.USER, Shown.ALWAYS, IndexSection.EVENTS),
    BlockType.USER_STEER: BlockTraits(bodies.SignalBody, Author.USER, Shown.ALWAYS, IndexSection.EVENTS),
    BlockType.EXTERNAL_EVENT: BlockTraits(bodies.EventBody, Author.USER, Shown.ALWAYS, IndexSection.EVENTS),
    BlockType.STAGE_GATE: BlockTraits(bodies.TitleBody, Author.RUNTIME, Shown.NEVER),
    BlockType.ROUND_START: BlockTraits(bodies.RoundStartBody, Author.RUNTIME, Shown.NEVER),
    BlockType.THINKING: BlockTraits(
        bodies.ThinkingBody, Author.ASSISTANT, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.NOTES: BlockTraits(
        bodies.NotesBody, Author.ASSISTANT, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.ANCHOR: BlockTraits(bodies.AnchorBody, Author.ASSISTANT, Shown.ALWAYS, IndexSection.NOTES),
    BlockType.NOTICE: BlockTraits(
        bodies.NoticeBody, Author.RUNTIME, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.DECISION_RAW: BlockTraits(
        bodies.RawDecisionBody, Author.ASSISTANT, Shown.GONE_WHEN_OLD, IndexSection.NOTES, is_decision=True
    ),
    BlockType.TOOL_CALL: BlockTraits(bodies.ToolCallBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, is_decision=True),
    BlockType.TOOL_CODE: BlockTraits(bodies.ToolCodeBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, IndexSection.NOTES),
    BlockType.TOOL_RESULT: BlockTraits(bodies.ToolResultBody, Author.TOOL, Shown.ROW_WHEN_OLD),
    BlockType.APPROVAL_REQUEST: BlockTraits(bodies.ApprovalRequestBody, Author.RUNTIME, Shown.NEVER),
    BlockType.APPROVAL_OUTCOME: BlockTraits(bodies.ApprovalOutcomeBody, Author.RUNTIME, Shown.NEVER),
    BlockType.PLAN: BlockTraits(bodies.PlanBody, Author.TOOL, Shown.ROW_WHEN_OLD, IndexSection.NOTES),
    BlockType.PLAN_ACK: BlockTraits(bodies.PlanAckBody, Author.ASSISTANT, Shown.NEVER, IndexSection.NOTES),
    BlockType.PLAN_HISTORY: BlockTraits(bodies.PlanHistoryBody, Author.RUNTIME, Shown.ALWAYS, IndexSection.NOTES),
    BlockType.HIDE: BlockTraits(bodies.HideBody, Author.TOOL, Shown.NEVER),
    BlockType.CHECKOUT: BlockTraits(bodies.CheckoutBody, Author.TOOL, Shown.NEVER),
    BlockType.COMPLETION: BlockTraits(
        bodies.CompletionBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES, is_decision=True
    ),
    BlockType.COMPLETION_ATTEMPT: BlockTraits(
        bodies.AttemptBody, Author.ASSISTANT, Shown.ROW_WHEN_OLD, IndexSection.MESSAGES, is_decision=True
    ),
    BlockType.DEFERRAL: BlockTraits(bodies.DeferralBody, Author.RUNTIME, Shown.GONE_WHEN_OLD, IndexSection.EVENTS),
    BlockType.WORKING_SUMMARY: BlockTraits(
        bodies.SummaryBody, Author.ASSISTANT, Shown.CARD_WHEN_OLD, IndexSection.SUMMARIES
    ),
    BlockType.RANGE_SUMMARY: BlockTraits(bodies.RangeSummaryBody, Author.RUNTIME, Shown.ALWAYS, IndexSection.SUMMARIES),
    BlockType.SYSTEM_MESSAGE: BlockTraits(bodies.SystemMessageBody, Author.RUNTIME, Shown.ALWAYS),
    BlockType.FEEDBACK: BlockTraits(bodies.FeedbackBody, Author.USER, Shown.ROW_WHEN_OLD, IndexSection.EVENTS),
    BlockType.EXIT: BlockTraits(bodies.ExitBody, Author.RUNTIME, Shown.NEVER),
    BlockType.UNKNOWN: BlockTraits(bodies.UnknownBody, Author.RUNTIME, Shown.NEVER),
}
"""The model reads a plan mark in the snapshot after it, and an approval in the result of its call. Of range summaries
and prune notices it sees only the newest."""


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
    """Parse a stored body. Raises pydantic.ValidationError when it is not of its type.

    Ignores fields of a newer version. A body with an enum value that only a newer version knows becomes an UnknownBody:
    skipping one block is better than failing its turn.
    """
    try:
        return kind.traits.body.model_validate_json(body_json, extra="ignore")
    except ValidationError as error:
        if {each["type"] for each in error.errors(include_url=False, include_input=False)} != {"literal_error"}:
            raise
        report_unknown(f"{kind.name} body", str(error.errors(include_url=False)[0]["input"]))
        return bodies.UnknownBody()


def canonical_json(body: Body) -> str:
    """The canonical JSON text of a body: keys sorted, no blanks, default values left out."""
    return _CANONICAL.encode(body.model_dump(mode="json", exclude_defaults=True))


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
