"""One step of a workflow: a segment of rounds of the ordinary loop in a lane of its own, up to the step's result."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from chat_proc.agent.approving import ApprovalGate
from chat_proc.agent.closing import ClosingCall, find_usable_text
from chat_proc.agent.drafting import CUT_WORDS, RoundContext
from chat_proc.agent.finishing import end_with_attempt, render_calls
from chat_proc.agent.generation import Generator
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.limits import reached_cap, round_limit
from chat_proc.agent.prompt.system import PLAN_TOOL, load_topic
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.agent.round import RoundRunner
from chat_proc.agent.round_calls import RoundCalls
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.agent.step_results import commit_result, report_plan
from chat_proc.agent.tool_calls import Wait
from chat_proc.agent.tool_selection import LOOP_TOOLS
from chat_proc.turn.leased import NOTHING, CommitContent, LeasedTurn, TurnEnd
from everturn.core.errors import Conflict
from everturn.core.refs import round_ref
from everturn.models.port import ContextLimitExceeded
from everturn.timeline.blocks import (
    Block,
    BlockType,
    CompletionBody,
    PlannedStep,
    RoundStartBody,
    StepBody,
    StepResultBody,
)
from everturn.timeline.progress import BeginTurn, ExecuteCalls, FinishTurn, GenerateRound, TurnEnded, TurnProgress

MAX_FOUND_CHARS = 500
"""How much of a result a step that has failed passes on: later steps can read the rest by its ref."""
MAX_STEP_ROUNDS = 15
"""Rounds of one step, as many as a whole turn has with the codec channels: no step can use up those of the others."""
NOT_IN_STEPS: Final = frozenset({PLAN_TOOL, "react.hide"})
"""The plan is the workflow's own, and later turns would not see what a step hides, although others may have used it."""

_Reply = TypeVar("_Reply")


class StepStop(Enum):
    """Why a step stopped. Only an ENDED one has its result, or can't begin because the turn has reached a cap."""

    ENDED = "ended"
    PARKED = "parked"
    """It can only wait for a person or a detached run now."""
    POSTPONED = "postponed"
    """An outage hides what its next call does."""
    HANDED_OVER = "handed_over"
    INTERRUPTED = "interrupted"
    """A steer or a cancel is pending."""


_STOPS: Final = {Wait.PARKED: StepStop.PARKED, Wait.POSTPONED: StepStop.POSTPONED}


def build_step_kit(kit: TurnKit, model_hint: str | None, tools: tuple[str, ...]) -> TurnKit:
    """The kit of a step: of the model that the plan names, with the tools that it lists (all if it lists none) and
    those of the loop itself. Rounds are numbered in the whole turn, so their limit is that of the turn. The answer of a
    step is its result as it is, without synthesis and notes."""
    base = kit.hinted.get(model_hint or "", kit)
    offered = {spec.tool_id for spec in kit.catalog.specs} - NOT_IN_STEPS
    if tools:
        offered = {tool_id for tool_id in offered if tool_id.startswith(LOOP_TOOLS) or tool_id in tools}
    dropped = {spec.tool_id for spec in base.catalog.specs} - offered
    limits = replace(base.limits, rounds=kit.limits.rounds)
    return replace(base.without(dropped), limits=limits, synthesis="off", summary_model=None)


def choose_shown(turn_blocks: Sequence[Block], step: PlannedStep) -> list[Block]:
    """What the requests of a step show: the person's messages with their files, the results of the steps that it
    depends on, and its own rounds."""
    own: set[int] = set()
    shown: list[Block] = []
    of_steps: set[int] = set()
    for block in turn_blocks:
        match block.body:
            case RoundStartBody(lane=lane) if lane:
                of_steps.add(block.round)
                if lane == step.id:
                    own.add(block.round)
            case _:
                """Only a start says to which step its round belongs."""
        is_dependency = isinstance(block.body, StepResultBody) and block.body.step in step.depends_on
        if block.round not in of_steps or block.round in own or is_dependency:
            shown.append(block)
    return shown


@dataclass(frozen=True, slots=True)
class _StepRoom:
    """The room of a step, which is never summarized: summaries cover ranges of the timeline, in which other lanes have
    blocks, too. `max_tokens` is the length that a request must stay below."""

    prompts: TurnPrompts
    max_tokens: int

    async def is_full(self, context: RoundContext) -> bool:
        """Whether the next request is longer than allowed."""
        return await self.prompts.measure(context) >= self.max_tokens

    async def run_fitting(
        self, context: RoundContext, generate: Callable[[], Awaitable[_Reply]], *, allow_model: bool = True
    ) -> _Reply:
        return await generate()


@dataclass(frozen=True, slots=True)
class _Lane:
    """A step being run: the turn as it sees it, and its requests."""

    step: PlannedStep
    turn: LeasedTurn
    prompts: TurnPrompts
    room: _StepRoom

    @property
    def progress(self) -> TurnProgress:
        return self.turn.progress


class StepRunner:
    """Runs steps of one kit. `whole` is the turn that they belong to; only one of its lanes writes files at a time."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies, whole: LeasedTurn, writing: asyncio.Lock) -> None:
        self._kit = kit
        self._parts = parts
        self._whole = whole
        self._failpoints = parts.failpoints
        generator, gate = Generator(kit, parts), ApprovalGate(kit, parts)
        self._rounds = RoundRunner(kit, parts, generator, gate)
        self._calls = RoundCalls(kit, parts, gate, writing=writing)
        self._closing = ClosingCall(generator)

    async def run(self, step: PlannedStep, *, takeovers: int, resumed: bool) -> StepStop:
        """Run from the step's current state to its result, or until it can't go on. `takeovers` as in `AgentLoop.run`;
        with `resumed`, its calls without a result may have been begun by another worker."""
        lane = self._open(step, choose_shown(self._whole.turn_blocks, step))
        turn = lane.turn
        if takeovers and turn.progress.started_round > turn.progress.sealed_round:
            await self._rounds.record_lost_calls(turn, lane.prompts, takeovers)
        waited = True
        while True:
            match self._whole.progress.next_step(step.id):
                case ExecuteCalls() as calls:
                    if resumed and turn.handover and not through_last_end(await turn.inbox.load_unseen()):
                        return StepStop.HANDED_OVER
                    wait = await self._calls.run(turn, calls, resumed=resumed, waited=waited)
                    if wait is not None:
                        return _STOPS[wait]
                case FinishTurn() as pending:
                    await self._end(lane, end_with_attempt(turn, pending))
                case GenerateRound(round=number):
                    if await turn.inbox.has_control():
                        return StepStop.INTERRUPTED
                    if turn.handover:
                        return StepStop.HANDED_OVER
                    await self._run_round(lane, number)
                    if not turn.progress.started_round:
                        return StepStop.ENDED
                case TurnEnded():
                    return StepStop.ENDED
                case BeginTurn():
                    raise Conflict("A lane can't begin a turn.")
            resumed = waited = False

    async def make_calls(self, step: PlannedStep) -> StepStop | None:
        """Make the calls of a step that has waited for a person or a detached run. PARKED or POSTPONED if it still
        waits."""
        match self._whole.progress.next_step(step.id):
            case ExecuteCalls() as calls:
                lane = self._open(step, choose_shown(self._whole.turn_blocks, step))
                wait = await self._calls.run(lane.turn, calls, resumed=False, waited=True)
                return None if wait is None else _STOPS[wait]
            case _:
                return None

    def may_wait_for_run(self, step: PlannedStep) -> bool:
        """Whether a call that has no result yet may be a detached run."""
        calls = self._whole.progress.next_step(step.id)
        return isinstance(calls, ExecuteCalls) and self._calls.may_wait_for_run(calls)

    def _open(self, step: PlannedStep, shown: Sequence[Block]) -> _Lane:
        turn = self._whole.open_lane(step.id, shown)
        media = self._parts.attachments.open_media(turn.lease.principal.tenant, turn.activity.note_progress)
        prompts = TurnPrompts(self._kit, turn, media)
        return _Lane(step, turn, prompts, _StepRoom(prompts, self._kit.context.hard))

    async def _run_round(self, lane: _Lane, number: int) -> None:
        """Run one round. A cap of the turn ends the step, unless it has not begun; at one of its own the model has a
        last call."""
        is_open = lane.progress.started_round > lane.progress.sealed_round
        cap = self._find_turn_cap(number)
        if cap is None and not is_open:
            number, cap = await self._begin_round(lane)
        if cap is not None:
            if lane.progress.started_round:
                await self._fail(lane, f"The step reached {cap}.")
            return
        context = self._context(lane, number)
        if (cap := self._find_step_cap(lane)) is not None:
            await self._close(lane, context, cap)
        elif await lane.room.is_full(context):
            await self._close_without_last(lane, context)
        else:
            try:
                end = await self._rounds.run(lane.turn, lane.prompts, lane.room, context)
            except ContextLimitExceeded:
                # The provider counts more tokens than we do.
                await self._close_without_last(lane, context)
                return
            if end is not None:
                await self._end(lane, end)

    async def _begin_round(self, lane: _Lane) -> tuple[int, str | None]:
        """Commit the start of the next round, which gives it its number: lanes begin rounds side by side. The first one
        begins the step. Returns the number and, if the rounds of other lanes have reached it, the limit."""
        number, cap = 0, None

        def build() -> CommitContent | None:
            nonlocal number, cap
            number = self._whole.progress.last_round + 1
            cap = self._find_turn_cap(number)
            if cap is not None:
                return None
            context = self._context(lane, number)
            start = RoundStartBody(limit=context.limit, lane=lane.step.id)
            drafts = [context.draft(BlockType.ROUND_START, round_ref(context.turn_id, number, "start"), start)]
            if lane.progress.started_round:
                return CommitContent(drafts=tuple(drafts))
            task = StepBody(step=lane.step.id, text=load_topic("dag_step").replace("{task}", lane.step.task))
            drafts.append(context.draft(BlockType.STEP, round_ref(context.turn_id, number, "step"), task))
            return report_plan(lane.turn, CommitContent(drafts=tuple(drafts)), number)

        await lane.turn.commit_built(build)
        return number, cap

    async def _close_without_last(self, lane: _Lane, context: RoundContext) -> None:
        """The results of the last round do not fit into a request: close with what the model saw before them."""
        last = lane.progress.sealed_round
        seen = self._open(lane.step, [block for block in lane.turn.shown if block.round != last])
        if lane.progress.rounds < 2 or await seen.room.is_full(context):
            await self._fail(lane, "The step has read more than fits into one request of its model.")
            return
        unread = render_calls([block for block in lane.turn.shown if block.round == last], result_chars=MAX_FOUND_CHARS)
        await self._close(seen, context, "the length limit of one request", unread)

    async def _close(self, lane: _Lane, context: RoundContext, cap: str, unread: str = "") -> None:
        """Let the model write the result from what it has, without tools. If it does not, the step fails. If a signal
        has ended the call, it is made again in case the step goes on. `unread` are calls whose results it does not
        see."""
        end = await self._closing.run(lane.turn, lane.prompts, lane.room, context, cap, has_last_resort=False)
        if end is None:
            return
        if end.error is not None:
            await self._fail(lane, f"The step reached {cap}. {end.error.title}.", end.content)
        else:
            await self._end(lane, end, cap=cap, unread=unread)

    async def _end(self, lane: _Lane, end: TurnEnd, *, cap: str | None = None, unread: str = "") -> None:
        """Commit the end of a step: its answer is its result, unless the model failed. `cap` and `unread` as in
        `_close`."""
        answer = next((draft.body for draft in end.content.drafts if isinstance(draft.body, CompletionBody)), None)
        if end.error is not None or answer is None:
            why = end.error.detail or end.error.title if end.error is not None else "The model gave no answer."
            await self._fail(lane, f"The step failed. {why}", end.content)
        elif end.cut_reason == "provider_error":
            text = f"The step failed because its model stopped answering. {answer.text}"
            await commit_result(lane.turn, "failed", text, self._failpoints, end.content)
        else:
            cut = CUT_WORDS[end.cut_reason] if end.cut_reason else ""
            reasons = "; ".join(filter(None, (f"the step reached {cap}" if cap else "", cut)))
            notes = [f"(This result is incomplete: {reasons}.)"] if reasons else []
            notes += [f"It does not consider the last calls of the step:\n{unread}"] if unread else []
            text = "\n\n".join((answer.text, *notes))
            await commit_result(lane.turn, "ok", text, self._failpoints, end.content)

    async def _fail(self, lane: _Lane, why: str, content: CommitContent = NOTHING) -> None:
        """Commit that the step has failed, with what it has found out or done until then."""
        own = lane.turn.own_blocks
        done = await find_usable_text(own)
        if not done and (calls := render_calls(own, result_chars=MAX_FOUND_CHARS)):
            done = f"It made these calls:\n{calls}"
        await commit_result(lane.turn, "failed", f"{why} {done}".strip(), self._failpoints, content)

    def _find_turn_cap(self, number: int) -> str | None:
        """The cap of the turn that leaves no room for this round, in words: no more models are called for steps."""
        limit = round_limit(self._kit.limits, self._whole.progress)
        if number > limit:
            return f"the turn's limit of {limit} rounds"
        return reached_cap(self._kit.limits, self._whole.spent)

    def _find_step_cap(self, lane: _Lane) -> str | None:
        """The cap that the step itself has reached, in words."""
        if lane.progress.rounds >= MAX_STEP_ROUNDS:
            return f"the limit of {MAX_STEP_ROUNDS} rounds"
        has_failed = len(lane.progress.failure_streak) > self._kit.limits.max_repairs
        return "the limit on replies that could not be used" if has_failed else None

    def _context(self, lane: _Lane, number: int) -> RoundContext:
        """Rounds are numbered in the whole turn, so the limit is the number of the last round that the step can have
        if no other lane begins one."""
        rounds = lane.progress.rounds
        limit = min(round_limit(self._kit.limits, self._whole.progress), number + MAX_STEP_ROUNDS - 1 - rounds)
        return RoundContext(lane.turn.turn_id, number, limit, lane.turn.now(), others=number - 1 - rounds)
