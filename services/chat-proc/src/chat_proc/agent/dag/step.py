"""One step of a workflow: a segment of rounds of the ordinary loop in a lane of its own, up to the step's result."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, TypeVar

from chat_proc.agent.closing import find_usable_text
from chat_proc.agent.compaction import TurnCompaction
from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.finishing import render_calls
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.loop import AgentLoop, has_control, reached_cap, round_limit
from chat_proc.agent.prompt.system import load_topic
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.agent.tool_selection import LOOP_TOOLS
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from everturn.core.errors import Conflict
from everturn.core.metrics import WORKFLOW_STEPS
from everturn.core.refs import round_ref
from everturn.events.model import ChatPlan
from everturn.timeline.blocks import (
    Block,
    BlockType,
    CompletionBody,
    PlannedStep,
    RoundStartBody,
    StepBody,
    StepResultBody,
)
from everturn.timeline.progress import BeginTurn, ExecuteCalls, FinishTurn, GenerateRound, PendingCall, TurnEnded
from everturn.timeline.workflow import fold_workflow

MAX_FOUND_CHARS = 500
"""How much of a result a step that has failed passes on: later steps can read the rest by its ref."""
MAX_STEP_ROUNDS = 15
"""Rounds of one step, as many as a whole turn has with the codec channels: no step can use up those of the others."""
NOT_IN_STEPS: Final = frozenset({"react.plan", "react.hide"})
"""The plan is the workflow's own, and later turns would not see what a step hides, although others may have used it."""

_Reply = TypeVar("_Reply")


class StepStop(Enum):
    """Why a step stopped. Only an ENDED one has its result, or can't begin because the turn has reached a cap."""

    ENDED = "ended"
    PARKED = "parked"
    """It can only wait for a person now."""
    HANDED_OVER = "handed_over"
    INTERRUPTED = "interrupted"
    """A steer or a cancel is pending."""


def build_step_kit(kit: TurnKit, model_hint: str | None, tools: tuple[str, ...]) -> TurnKit:
    """The kit of a step: of the model that the plan names, with the tools that it lists (all if it lists none) and
    those of the loop itself. The answer of a step is its result as it is, without synthesis and notes."""
    base = kit.hinted.get(model_hint or "", kit)
    offered = {spec.tool_id for spec in kit.catalog.specs} - NOT_IN_STEPS
    if tools:
        offered = {tool_id for tool_id in offered if tool_id.startswith(LOOP_TOOLS) or tool_id in tools}
    dropped = {spec.tool_id for spec in base.catalog.specs} - offered
    return replace(base.without(dropped), synthesis="off", summary_model=None)


def choose_shown(turn_blocks: Sequence[Block], step: PlannedStep) -> list[Block]:
    """What the requests of a step show: the person's messages with their files, the results of the steps that it
    depends on, and its own rounds."""
    own: set[int] = set()
    shown: list[Block] = []
    lanes: set[int] = set()
    for block in turn_blocks:
        match block.body:
            case RoundStartBody(lane=lane) if lane:
                lanes.add(block.round)
                if lane == step.id:
                    own.add(block.round)
            case _:
                """Only a start says to which lane its round belongs."""
        is_dependency = isinstance(block.body, StepResultBody) and block.body.step in step.depends_on
        if block.round not in lanes or block.round in own or is_dependency:
            shown.append(block)
    return shown


class StepLoop(AgentLoop):
    """Runs steps of one kit. `whole` is the turn that they belong to; only one of its lanes writes files at a time."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies, whole: LeasedTurn, writing: asyncio.Lock) -> None:
        super().__init__(kit, parts)
        self._whole = whole
        self._writing = writing

    async def run_step(self, step: PlannedStep, *, takeovers: int, resumed: bool) -> StepStop:
        """Run from the step's current state to its result, or until it can't go on. `resumed` as in `AgentLoop.run`:
        its calls without a result may have been begun by another worker."""
        whole = self._whole
        turn = whole.open_lane(step.id, choose_shown(whole.turn_blocks, step))
        media = self._parts.attachments.open_media(turn.lease.principal.tenant, turn.activity.note_progress)
        prompts = TurnPrompts(self._kit, turn, media)
        room = _StepRoom(self._kit, self._parts, turn, prompts)
        if takeovers and turn.progress.started_round > turn.progress.sealed_round:
            await self._rounds.record_lost_calls(turn, prompts, takeovers)
        while True:
            match whole.progress.next_step(step.id):
                case ExecuteCalls() as calls:
                    if resumed and turn.handover and not through_last_end(await turn.inbox.load_unseen()):
                        return StepStop.HANDED_OVER
                    if not await self._execute(turn, calls, resumed=resumed):
                        return StepStop.PARKED
                case FinishTurn() as pending:
                    end = await self._finisher.run(turn, prompts.codec, pending, pending.round)
                    await self._commit_result(turn, step, pending.round, end)
                case GenerateRound(round=number):
                    if await has_control(turn):
                        return StepStop.INTERRUPTED
                    if turn.handover:
                        return StepStop.HANDED_OVER
                    await self._run_step_round(turn, step, prompts, room, number)
                    if not turn.progress.started_round:
                        return StepStop.ENDED
                case TurnEnded():
                    return StepStop.ENDED
                case BeginTurn():
                    raise Conflict("A lane is no turn.")
            resumed = False

    async def cancel(self, step_id: str) -> None:
        """Record that a step that has begun does not go on because of a steer."""
        turn = self._whole.open_lane(step_id, ())
        why = "The step was stopped because a new message from the user changes the work."
        result = StepResultBody(step=step_id, status="cancelled", text=why)
        await self._commit(turn, turn.progress.last_round, CommitContent(), result)

    async def _run_step_round(
        self, turn: LeasedTurn, step: PlannedStep, prompts: TurnPrompts, room: "_StepRoom", number: int
    ) -> None:
        """Run one round. A cap ends the step, unless it has not begun."""
        is_open = turn.progress.started_round > turn.progress.sealed_round
        cap = self._find_cap(turn, number)
        if cap is None and not is_open:
            number, cap = await self._begin_round(turn, step)
        if cap is not None:
            if turn.progress.started_round:
                await self._commit_failure(turn, step, f"The step reached {cap}.")
            return
        context = self._context(turn, number)
        if await room.is_full(context):
            await self._commit_failure(turn, step, "The step has read more than fits into one request of its model.")
            return
        end = await self._rounds.run(turn, prompts, room, context)
        if end is not None:
            await self._commit_result(turn, step, number, end)

    async def _begin_round(self, turn: LeasedTurn, step: PlannedStep) -> tuple[int, str | None]:
        """Commit the start of the next round, which gives it its number: lanes begin rounds side by side. The first one
        begins the step. Returns the number and, if the rounds of other lanes have reached it, the limit."""
        number, cap = 0, None

        def build() -> CommitContent | None:
            nonlocal number, cap
            number = self._whole.progress.last_round + 1
            cap = self._find_cap(turn, number)
            if cap is not None:
                return None
            context = self._context(turn, number)
            start = RoundStartBody(limit=context.limit, lane=step.id)
            drafts = [context.draft(BlockType.ROUND_START, round_ref(turn.turn_id, number, "start"), start)]
            if turn.progress.started_round:
                return CommitContent(drafts=tuple(drafts))
            task = StepBody(step=step.id, text=load_topic("dag_step").replace("{task}", step.task))
            drafts.append(context.draft(BlockType.STEP, round_ref(turn.turn_id, number, "step"), task))
            return self._report_plan(CommitContent(drafts=tuple(drafts)), number)

        await turn.commit_built(build)
        return number, cap

    async def _commit_result(self, turn: LeasedTurn, step: PlannedStep, number: int, end: TurnEnd) -> None:
        """Commit the end of a step: its answer is its result."""
        answer = next((draft.body for draft in end.content.drafts if isinstance(draft.body, CompletionBody)), None)
        if end.error is not None or answer is None:
            why = end.error.detail or end.error.title if end.error is not None else "The model gave no answer."
            result = StepResultBody(step=step.id, status="failed", text=f"The step failed. {why}")
        elif end.cut_reason == "provider_error":
            why = "The step failed because its model stopped answering."
            result = StepResultBody(step=step.id, status="failed", text=f"{why} {answer.text}")
        else:
            cut = f"\n\n(This result is incomplete: {end.cut_reason}.)" if end.cut_reason is not None else ""
            result = StepResultBody(step=step.id, status="ok", text=answer.text + cut)
        await self._commit(turn, number, end.content, result)

    async def _commit_failure(self, turn: LeasedTurn, step: PlannedStep, why: str) -> None:
        """Commit that the step has failed, with what it has found out or done until then."""
        done = find_usable_text(turn.own_blocks)
        if not done and (steps := render_calls(turn.own_blocks, result_chars=MAX_FOUND_CHARS)):
            done = f"It made these calls:\n{steps}"
        result = StepResultBody(step=step.id, status="failed", text=f"{why} {done}".strip())
        await self._commit(turn, turn.progress.last_round, CommitContent(), result)

    async def _commit(self, turn: LeasedTurn, number: int, content: CommitContent, result: StepResultBody) -> None:
        context = RoundContext(turn.turn_id, number, number, turn.now())
        draft = context.draft(BlockType.STEP_RESULT, round_ref(turn.turn_id, number, "step.result"), result)
        whole = content.plus(CommitContent(drafts=(draft,)))
        self._failpoints.hit("turn.before_step_result")
        await turn.commit_built(lambda: self._report_plan(whole, number))
        self._failpoints.hit("turn.after_step_result")
        WORKFLOW_STEPS.labels(result.status).inc()

    def _report_plan(self, content: CommitContent, number: int) -> CommitContent:
        """The same content with the event that shows the plan after it."""
        plan = fold_workflow((*self._whole.turn_blocks, *content.drafts)).build_snapshot()
        return content if plan is None else replace(content, after=(*content.after, (ChatPlan(plan=plan), number)))

    def _find_cap(self, turn: LeasedTurn, number: int) -> str | None:
        limit = round_limit(self._limits, self._whole.progress)
        if number > limit:
            return f"the turn's limit of {limit} rounds"
        if turn.progress.rounds >= MAX_STEP_ROUNDS:
            return f"its limit of {MAX_STEP_ROUNDS} rounds"
        if len(turn.progress.failure_streak) > self._limits.max_repairs:
            return "the limit on unusable replies"
        return reached_cap(self._limits, turn.spent)

    def _context(self, turn: LeasedTurn, number: int) -> RoundContext:
        """Rounds are numbered in the whole turn, so the limit is the number of the last round that the step can have
        if no other lane begins one."""
        last = number + MAX_STEP_ROUNDS - 1 - turn.progress.rounds
        limit = min(round_limit(self._limits, self._whole.progress), last)
        return RoundContext(turn.turn_id, number, limit, turn.now())

    async def _run_with_approval(
        self, turn: LeasedTurn, calls: Sequence[PendingCall], number: int, *, resumed: bool
    ) -> bool:
        async with self._writing:
            return await super()._run_with_approval(turn, calls, number, resumed=resumed)

    async def _run_group(
        self, turn: LeasedTurn, calls: Sequence[PendingCall], number: int, *, resumed: bool, stopped: bool
    ) -> bool:
        if all(map(self._tools.runs_beside, calls)):
            return await super()._run_group(turn, calls, number, resumed=resumed, stopped=stopped)
        async with self._writing:
            stopped = stopped or await has_control(turn)
            return await super()._run_group(turn, calls, number, resumed=resumed, stopped=stopped)


class _StepRoom(TurnCompaction):
    """A step is never summarized: summaries cover ranges of the timeline, in which other lanes have blocks, too."""

    async def is_full(self, context: RoundContext) -> bool:
        """Whether the next request is longer than allowed."""
        return await self._prompts.measure(context) >= self._limits.hard

    async def run_fitting(
        self, context: RoundContext, generate: Callable[[], Awaitable[_Reply]], *, allow_model: bool = True
    ) -> _Reply:
        return await generate()
