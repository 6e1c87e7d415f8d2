"""The next step of a turn, derived from its blocks alone, so that any worker can continue where another stopped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from everturn.core.ids import CallId
from everturn.timeline.blocks import Block, BlockType
from everturn.timeline.bodies import (
    ApprovalOutcomeBody,
    ApprovalRequestBody,
    AttemptBody,
    CompletionBody,
    DeferralBody,
    RawDecisionBody,
    ToolCallBody,
)

PENDING = "pending"
"""Reason of an attempt that waits for the calls next to it, until a completion or a deferral follows."""

INTERRUPTED = "interrupted"
"""Code of a raw reply that a signal interrupted: the reply was not faulty."""


@dataclass(frozen=True, slots=True)
class BeginTurn:
    """The turn has no blocks: write the header and the prompt."""


@dataclass(frozen=True, slots=True)
class GenerateRound:
    """Call the model; `round` counts from 1."""

    round: int


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call without a result on the timeline. `code` is its program, if it has one."""

    block: Block
    body: ToolCallBody
    code: str | None


@dataclass(frozen=True, slots=True)
class ExecuteCalls:
    """Run the calls of this round that have no result, in order."""

    round: int
    calls: tuple[PendingCall, ...]


@dataclass(frozen=True, slots=True)
class FinishTurn:
    """The calls next to an answer have run: the answer ends the turn. `ts_first` is when it was first seen."""

    round: int
    attempt: AttemptBody
    ts_first: str | None


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn has its terminal block."""


NextStep = BeginTurn | GenerateRound | ExecuteCalls | FinishTurn | TurnEnded


def next_step(blocks: Sequence[Block]) -> NextStep:
    """Choose the next step from the blocks of one turn, in order."""
    if not blocks:
        return BeginTurn()
    if blocks[-1].type is BlockType.EXIT:
        return TurnEnded()
    pending = _pending_calls(blocks)
    if pending:
        return ExecuteCalls(pending[0].block.round, pending)
    if (finish := _try_finish(blocks)) is not None:
        return finish
    return GenerateRound(sealed_round(blocks) + 1)


def _try_finish(blocks: Sequence[Block]) -> FinishTurn | None:
    for block in reversed(blocks):
        match block.body:
            case AttemptBody(reason=reason) as attempt if reason == PENDING:
                return FinishTurn(block.round, attempt, block.ts_first)
            case AttemptBody() | CompletionBody() | DeferralBody():
                return None
            case _:
                """Says nothing about an answer."""
    return None


def sealed_round(blocks: Sequence[Block]) -> int:
    """The last round whose decision is committed; 0 when there is none."""
    return max((block.round for block in blocks if block.type.traits.is_decision), default=0)


def failure_streak(blocks: Sequence[Block]) -> tuple[str, ...]:
    """The codes of the turn's consecutive last replies that could not be used, newest first."""
    failed = {
        block.round: block.body.code
        for block in blocks
        if isinstance(block.body, RawDecisionBody) and block.body.code != INTERRUPTED
    }
    codes: list[str] = []
    round_number = sealed_round(blocks)
    while round_number in failed:
        codes.append(failed[round_number])
        round_number -= 1
    return tuple(codes)


def _pending_calls(blocks: Sequence[Block]) -> tuple[PendingCall, ...]:
    answered = {block.call_id for block in blocks if block.type is BlockType.TOOL_RESULT}
    code = {block.call_id: block for block in blocks if block.type is BlockType.TOOL_CODE}
    pending: list[PendingCall] = []
    for block in blocks:
        if block.type is BlockType.TOOL_CALL and block.call_id not in answered and isinstance(block.body, ToolCallBody):
            program = code.get(block.call_id)
            text: str | None = getattr(program.body, "text", None) if program else None
            pending.append(PendingCall(block, block.body, text))
    return tuple(pending)


@dataclass(frozen=True, slots=True)
class Question:
    """A call that needs a person's approval; `outcome` is None while it is open. Times are those of the blocks."""

    request: ApprovalRequestBody
    asked_at: str
    outcome: ApprovalOutcomeBody | None = None
    settled_at: str | None = None


def find_questions(turn_blocks: Sequence[Block]) -> Mapping[CallId, Question]:
    """The questions by the id of their call, in the order in which they were asked."""
    found: dict[CallId, Question] = {}
    for block in turn_blocks:
        call_id = block.call_id or CallId("")
        match block.body:
            case ApprovalRequestBody() as request:
                found[call_id] = Question(request, block.ts)
            case ApprovalOutcomeBody() as outcome if call_id in found:
                found[call_id] = replace(found[call_id], outcome=outcome, settled_at=block.ts)
            case _:
                """Asks and answers nothing."""
    return found


def count_waited_s(turn_blocks: Sequence[Block]) -> float:
    """Seconds spent waiting for answers; overlapping waits count once."""
    waits = sorted(
        (datetime.fromisoformat(each.asked_at), datetime.fromisoformat(each.settled_at))
        for each in find_questions(turn_blocks).values()
        if each.settled_at is not None
    )
    total, until = 0.0, None
    for begin, end in waits:
        since = begin if until is None else max(begin, until)
        total += max(0.0, (end - since).total_seconds())
        until = end if until is None else max(end, until)
    return total
