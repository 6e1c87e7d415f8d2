"""How far a turn is and what comes next, folded from its blocks alone, so that any worker can continue where another
stopped."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from everturn.core.ids import CallId
from everturn.timeline.blocks import (
    ApprovalOutcomeBody,
    ApprovalRequestBody,
    AttemptBody,
    Author,
    Block,
    BlockType,
    CompletionBody,
    DeferralBody,
    EventBody,
    NoticeBody,
    PlanAckBody,
    RawDecisionBody,
    RoundStartBody,
    SignalBody,
    StepResultBody,
    TitleBody,
    ToolCallBody,
    ToolCodeBody,
    TurnHeaderBody,
)

PENDING = "pending"
"""Reason of an attempt that waits for the calls next to it, until a completion or a deferral follows."""

CALLS_NATIVELY = "calls_natively"
"""Code of the notice after which the model of a turn calls tools in its provider's own form."""

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
    """The turn has its terminal block, or the lane its result."""


NextStep = BeginTurn | GenerateRound | ExecuteCalls | FinishTurn | TurnEnded


@dataclass(frozen=True, slots=True)
class Question:
    """A call that needs a person's approval; `outcome` is None while it is open. Times are those of the blocks."""

    request: ApprovalRequestBody
    asked_at: str
    outcome: ApprovalOutcomeBody | None = None
    settled_at: str | None = None


@dataclass(slots=True)
class TurnProgress:
    """How far one turn is. It takes the turn's blocks in order. Taking a block and reading a field cost the same after
    any number of blocks.

    The owner of the blocks calls `extend`, everything else only reads. A lane has progress of its own, made from the
    blocks of its rounds; the numbers of rounds are those of the turn in both.
    """

    last_round: int = 0
    """The newest round that has a block; 0 before the first round."""
    started_round: int = 0
    """The newest round that has its start."""
    sealed_round: int = 0
    """The last round whose decision is committed; 0 if there is none."""
    followup_round: int = 0
    """The last round into which a followup was folded; 0 if there was none."""
    steer_round: int = 0
    """The same of a steer."""
    earned_credit: int = 0
    """The rounds that signals added, before any bound: one for each followup, and for an event the credit that it
    states. Events that the turn began with add none: all its rounds were still available."""
    calls: int = 0
    """The calls of tools that the loop has decided on."""
    completions: int = 0
    plan_acks: int = 0
    calls_natively: bool = False
    """Whether the model has called a tool in its provider's own form, although its prompt has another one."""
    chosen_tools: tuple[str, ...] | None = None
    """The selectable tools that the turn offers; None if it offers all."""
    is_titled: bool = False
    """Whether a block contains the conversation's title."""
    deferred: CompletionBody | None = None
    """The answer that was deferred last."""
    result: StepResultBody | None = None
    """The result of a lane that has ended; the turn itself has none."""
    lanes: dict[str, "TurnProgress"] = field(default_factory=lambda: {})
    """The progress of each step that has begun, by its id."""
    _last: Block | None = None
    _last_of_sealed: Block | None = None
    """The last block of the sealed round; signals that are folded into the next round can follow it."""
    _last_completion: tuple[int, CompletionBody | None] = (0, None)
    """Its round, and the answer."""
    _answer: Block | None = None
    """The last attempt, completion or deferral."""
    _calls: dict[CallId | None, tuple[Block, ToolCallBody]] = field(default_factory=lambda: {})
    """The calls without a result, in order."""
    _programs: dict[CallId | None, str] = field(default_factory=lambda: {})
    _failed: dict[int, str] = field(default_factory=lambda: {})
    """The code of each reply that could not be used, by round."""
    _sealed: dict[int, None] = field(default_factory=lambda: {})
    """The rounds whose decisions are committed, in the order of their commits."""
    _step_of: dict[int, str] = field(default_factory=lambda: {})
    """The id of the step of each round that belongs to one."""
    _questions: dict[CallId, Question] = field(default_factory=lambda: {})

    def extend(self, blocks: Iterable[Block]) -> None:
        """Take the next blocks of the turn."""
        for block in blocks:
            self._count(block)
            lane = self._find_lane(block)
            if lane is not None:
                lane._count(block)
                lane._note(block)
            if lane is None or isinstance(block.body, ApprovalRequestBody | ApprovalOutcomeBody):
                # What a person was asked counts for the turn, too.
                self._note(block)

    def next_step(self, step_id: str = "") -> NextStep:
        """What comes next in the turn, or in the lane of a step. A new round of a lane gets the next free number."""
        if step_id:
            own = self.lanes.get(step_id)
            if own is None or own._last is None:
                return GenerateRound(self.last_round + 1)
            step = own.next_step()
            if not isinstance(step, GenerateRound):
                return step
            has_begun = own.started_round > own.sealed_round
            return GenerateRound(own.started_round if has_begun else self.last_round + 1)
        if self._last is None:
            return BeginTurn()
        if self._last.type is BlockType.EXIT or self.result is not None:
            return TurnEnded()
        if self._calls:
            calls = tuple(
                PendingCall(block, body, self._programs.get(call_id)) for call_id, (block, body) in self._calls.items()
            )
            return ExecuteCalls(calls[0].block.round, calls)
        if self._answer is not None:
            match self._answer.body:
                case AttemptBody(reason=reason) as attempt if reason == PENDING:
                    return FinishTurn(self._answer.round, attempt, self._answer.ts_first)
                case _:
                    """The answer was settled, or did not end the turn."""
        return GenerateRound(self.sealed_round + 1)

    @property
    def is_finalizing(self) -> bool:
        """Whether a steer came last, so that the turn is only to be finished.

        A followup of the same round takes precedence, in either order.
        """
        return self.steer_round > self.followup_round

    @property
    def ends_with_answer(self) -> bool:
        """Whether the sealed round ends with an answer, and neither a deferral nor the turn's end follows in it."""
        return self._last_of_sealed is not None and isinstance(self._last_of_sealed.body, CompletionBody)

    @property
    def failure_streak(self) -> tuple[str, ...]:
        """The codes of the consecutive last replies that could not be used, newest first."""
        codes: list[str] = []
        for number in reversed(self._sealed):
            if (code := self._failed.get(number)) is None:
                break
            codes.append(code)
        return tuple(codes)

    def find_step(self, round_number: int) -> str:
        """The id of the step that a round belongs to; empty for a round of the turn itself."""
        return self._step_of.get(round_number, "")

    @property
    def rounds(self) -> int:
        """How many rounds have a committed decision."""
        return len(self._sealed)

    @property
    def questions(self) -> Mapping[CallId, Question]:
        """The questions by the id of their call, in the order in which they were asked."""
        return self._questions

    def count_waited_s(self) -> float:
        """Seconds spent waiting for answers; overlapping waits count once."""
        waits = sorted(
            (datetime.fromisoformat(each.asked_at), datetime.fromisoformat(each.settled_at))
            for each in self._questions.values()
            if each.settled_at is not None
        )
        total, until = 0.0, None
        for begin, end in waits:
            since = begin if until is None else max(begin, until)
            total += max(0.0, (end - since).total_seconds())
            until = end if until is None else max(end, until)
        return total

    def _find_lane(self, block: Block) -> "TurnProgress | None":
        """The progress of the lane that the block belongs to; None for a block of the turn itself."""
        if isinstance(block.body, RoundStartBody) and block.body.lane:
            self._step_of[block.round] = block.body.lane
        step_id = self._step_of.get(block.round)
        # The end of a turn, and the messages that end it, are in its last round, whatever lane that belongs to.
        if step_id is None or block.type is BlockType.EXIT or block.author is Author.USER:
            return None
        return self.lanes.setdefault(step_id, TurnProgress())

    def _count(self, block: Block) -> None:
        """Note what counts for the turn, whatever the block belongs to."""
        self._last = block
        self.last_round = max(self.last_round, block.round)
        if isinstance(block.body, RoundStartBody):
            self.started_round = max(self.started_round, block.round)
        if block.type.traits.is_decision:
            self.sealed_round = max(self.sealed_round, block.round)
            self._sealed.setdefault(block.round)
        if block.round == self.sealed_round:
            self._last_of_sealed = block

    def _note(self, block: Block) -> None:
        call_id = block.call_id
        match block.body:
            case _ if block.type is BlockType.TOOL_RESULT:
                # Also one that only a newer version can read: the call has been made.
                self._calls.pop(call_id, None)
                self._programs.pop(call_id, None)
            case ToolCallBody() as call:
                self._calls[call_id] = block, call
                self.calls += call.parent is None
            case TurnHeaderBody(tools=tools):
                self.chosen_tools = tools
            case ToolCodeBody(text=text):
                self._programs[call_id] = text
            case NoticeBody(code=code) if code == CALLS_NATIVELY:
                self.calls_natively = True
            case RawDecisionBody(code=code) if code != INTERRUPTED:
                self._failed[block.round] = code
            case AttemptBody():
                self._answer = block
            case CompletionBody() as given:
                self._answer = block
                self._last_completion = block.round, given
                self.completions += 1
            case DeferralBody():
                self._answer = block
                round_number, given = self._last_completion
                self.deferred = given if round_number == block.round else None
            case SignalBody() if block.type is BlockType.USER_STEER:
                self.steer_round = max(self.steer_round, block.round)
                self._drop_draft()
            case SignalBody():
                self.followup_round = max(self.followup_round, block.round)
                self.earned_credit += 1
                self._drop_draft()
            case EventBody(credit=credit) if block.round > 0:
                self.earned_credit += credit
                self._drop_draft()
            case TitleBody():
                self.is_titled = True
            case PlanAckBody():
                self.plan_acks += 1
            case StepResultBody() as result:
                self.result = result
            case ApprovalRequestBody() as request if call_id is not None:
                self._questions[call_id] = Question(request, block.ts)
            case ApprovalOutcomeBody() as outcome if call_id is not None and call_id in self._questions:
                asked = self._questions[call_id]
                self._questions[call_id] = replace(asked, outcome=outcome, settled_at=block.ts)
            case _:
                """Does not change how far the turn is."""

    def _drop_draft(self) -> None:
        """A draft is out of date once a message follows it: the next answer covers both."""
        if self._answer is not None and isinstance(self._answer.body, AttemptBody) and self._answer.body.is_draft:
            self._answer = None


def fold_progress(blocks: Iterable[Block]) -> TurnProgress:
    """How far a turn is after these blocks of it."""
    progress = TurnProgress()
    progress.extend(blocks)
    return progress
