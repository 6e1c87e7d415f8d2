"""The workflow `dag`: a plan of steps, waves of steps side by side, a judgement after each wave, and one answer.

What comes next is folded from the blocks (`everturn.timeline.workflow`), so any worker resumes every lane. The loop's
own phases (plan, judgement, answer) are rounds of the turn itself; they never run while a lane does.
"""

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from chat_proc.agent.authored.loop import AuthoredLoop
from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.dag.planning import Planner, build_results, cut_result
from chat_proc.agent.dag.step import StepRunner, StepStop, build_step_kit
from chat_proc.agent.drafting import draft_missing_start
from chat_proc.agent.extra_calls import build_question
from chat_proc.agent.finishing import PROSE, NotWritten, TurnFinisher
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.limits import max_rounds, round_limit
from chat_proc.agent.loop import AgentLoop, HandedOver, LoopResult, Parked
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from everturn.core.cancellation import Ran, discard_errors, run_until
from everturn.core.errors import StaleFence
from everturn.core.metrics import WORKFLOW_DECISIONS
from everturn.core.refs import round_ref
from everturn.events.model import ChatPlan
from everturn.models.port import ModelRequest
from everturn.timeline.blocks import AttemptBody, BlockType, PlannedStep, RoundStartBody, WorkflowBody
from everturn.timeline.progress import PENDING, ExecuteCalls, FinishTurn
from everturn.timeline.turns import CutReason, Outcome
from everturn.timeline.workflow import Phase, Workflow, build_label, fold_workflow

PARALLEL = 3
"""Steps that run at the same time. Each can have a model call and eight tool calls open, and providers limit the calls
of one key; plans are seldom wider."""
MAX_STEP_RESULT_CHARS = 6_000
"""How much of a result the synthesis sees: three times as much as of a tool's result, because it is an answer."""
USABLE_CUTS: Final[Collection[CutReason]] = ("length", "size_limit", "time_limit")
"""An answer that was cut off at a limit on its length or time says more than an account of the results. One that the
model or its provider declined to finish does not."""
RUN_CHECK_EVERY_S: Final = 3.0
"""How often a step that waits for a detached run asks whether it has ended: an end wakes only a turn without a worker.
"""
_STEP_STATUS_WORDS: Final = {"ok": "done", "failed": "failed", "cancelled": "stopped"}


class DagLoop:
    """Runs turns of one kit as plans of steps; keeps no state of them. What needs no plan is left to the ordinary
    loop."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._parts = parts
        self._limits = kit.limits
        self._failpoints = parts.failpoints
        self._loop = AgentLoop(kit, parts)
        self._boundaries = TurnBoundaries(kit, parts)
        self._planner = Planner(kit, parts)
        self._finisher = TurnFinisher(kit, parts)
        self._build_step_kit = cache(partial(build_step_kit, kit))

    async def run(self, turn: LeasedTurn, *, takeovers: int = 0) -> LoopResult:
        """As `AgentLoop.run`."""
        resumed, is_answering = True, False
        while True:
            workflow = fold_workflow(turn.turn_blocks)
            phase, cap = self._find_phase(turn, workflow)
            if phase is Phase.LOOP:
                return await self._loop.run(turn, takeovers=takeovers)
            if phase is Phase.RUN:
                steps = workflow.due if cap is None else workflow.unfinished
                stopped = await self._run_wave(turn, steps, workflow.running, takeovers=takeovers, resumed=resumed)
                resumed, takeovers = False, 0
                if stopped is not None:
                    return stopped
                end = await self._settle_interruption(turn)
            else:
                self._record_lost_calls(turn, workflow, phase, takeovers)
                is_answering = phase is Phase.ANSWER and (is_answering or takeovers > 0)
                takeovers = 0
                end = await self._try_end_answer(turn, workflow) if is_answering else None
                if end is None:
                    end = await self._boundaries.fold(turn, _next_round(turn))
                if end is None and turn.handover:
                    return HandedOver()
                if end is None:
                    is_answering = phase is Phase.ANSWER
                    end = await self._run_own_phase(turn)
            if end is not None and (closed := await self._boundaries.try_close(turn, end)) is not None:
                return closed

    def _record_lost_calls(self, turn: LeasedTurn, workflow: Workflow, phase: Phase, takeovers: int) -> None:
        """Record the call of this phase for each earlier worker, which may have died in it. The next commit writes its
        usage."""
        if takeovers and phase is Phase.ANSWER:
            self._finisher.record_lost_calls(turn, self._build_synthesis(turn, workflow), takeovers)
        elif takeovers:
            for _ in range(takeovers):
                turn.record_usage(self._planner.estimate_lost_call(turn, workflow))

    def _find_phase(self, turn: LeasedTurn, workflow: Workflow) -> tuple[Phase, str | None]:
        """What comes next, and the cap that the turn has reached, in words. At a cap no more steps begin and none are
        judged, but those that have begun get results."""
        phase = workflow.find_phase(is_finalizing=turn.progress.is_finalizing)
        number = turn.progress.last_round + 1 if phase is Phase.RUN else _next_round(turn)
        cap = self._boundaries.find_cap(turn, number)
        if cap is None or phase is Phase.LOOP:
            return phase, cap
        if phase is Phase.PLAN:
            return Phase.LOOP, cap
        return Phase.RUN if workflow.running else Phase.ANSWER, cap

    async def _run_own_phase(self, turn: LeasedTurn) -> TurnEnd | None:
        """One phase of the turn itself, after the signals were folded. Returns the turn's end if it is answered."""
        workflow, number = fold_workflow(turn.turn_blocks), _next_round(turn)
        phase, cap = self._find_phase(turn, workflow)
        decided: WorkflowBody | None = None
        match phase:
            case Phase.PLAN:
                decided = await self._planner.plan(turn, number)
            case Phase.ANALYZE:
                decided = await self._planner.judge(turn, number, workflow)
            case Phase.ANSWER:
                return await self._answer(turn, workflow, cap)
            case Phase.RUN | Phase.LOOP:
                """The signals that were folded have changed what comes next."""
        if decided is not None:
            await self._commit_decision(turn, workflow, number, decided)
        return None

    async def _commit_decision(self, turn: LeasedTurn, workflow: Workflow, number: int, decided: WorkflowBody) -> None:
        context = self._boundaries.build_context(turn, number)
        ref = round_ref(turn.turn_id, number, "workflow")
        drafts = (*draft_missing_start(context, turn.progress), context.draft(BlockType.WORKFLOW, ref, decided))
        plan = workflow.take(drafts).build_snapshot()
        WORKFLOW_DECISIONS.labels(decided.decision).inc()
        self._failpoints.hit("turn.before_plan")
        await turn.commit(CommitContent(drafts=drafts, after=((ChatPlan(plan=plan), number),) if plan else ()))
        self._failpoints.hit("turn.after_plan")

    async def _answer(self, turn: LeasedTurn, workflow: Workflow, cap: str | None) -> TurnEnd | None:
        """Write the answer from the results. An account of them is the answer only if that fails or the person ends the
        turn. None if the turn goes on, because a message came first."""
        draft, limit = build_draft(turn, workflow), round_limit(self._limits, turn.progress)
        request = self._build_synthesis(turn, workflow)
        end = await self._finisher.synthesize(turn, PROSE, draft, limit, request, usable_cuts=USABLE_CUTS)
        if isinstance(end, NotWritten):
            if (ended := await self._try_end_answer(turn, workflow)) is not None:
                return ended
            # At the upper bound of rounds no steer has room any more, so it becomes the next turn.
            is_over = end is NotWritten.FAILED or turn.progress.sealed_round >= max_rounds(self._limits)
            if not is_over or await self._boundaries.fold_before_draft(turn, draft):
                return None
            end = await self._build_account_end(turn, workflow)
        elif cap is None:
            return end
        # As in the loop: a turn limited by a steer was ended by the person, not by a cap.
        return replace(end, outcome=Outcome.STOPPED if turn.progress.is_finalizing else Outcome.CAPPED)

    async def _try_end_answer(self, turn: LeasedTurn, workflow: Workflow) -> TurnEnd | None:
        """The end of a turn that the person has ended since an answer was begun; None otherwise. An answer that they
        have seen before a message came remains the last one."""
        if not (ending := through_last_end(await turn.inbox.load_unseen())):
            return None
        stop = self._boundaries.end_by_signals(turn, ending, _next_round(turn))
        if turn.progress.completions:
            return stop
        account = await self._build_account_end(turn, workflow)
        return replace(stop, content=account.content.plus(stop.content))

    async def _build_account_end(self, turn: LeasedTurn, workflow: Workflow) -> TurnEnd:
        """The end with the account of the results as the answer, in the round of the synthesis."""
        number = _next_round(turn)
        draft = replace(build_draft(turn, workflow), round=number)
        end = await self._finisher.keep_answer(turn, PROSE, draft)
        start = CommitContent(
            drafts=tuple(draft_missing_start(self._boundaries.build_context(turn, number), turn.progress))
        )
        return replace(end, content=start.plus(end.content))

    def _build_synthesis(self, turn: LeasedTurn, workflow: Workflow) -> ModelRequest:
        return self._finisher.build_request(build_step_sections(turn, workflow))

    async def _run_wave(
        self, turn: LeasedTurn, steps: Sequence[PlannedStep], begun: Sequence[str], *, takeovers: int, resumed: bool
    ) -> HandedOver | Parked | None:
        """Run steps, at most PARALLEL at a time. Returns None if all have stopped and there is more to do.

        As long as another one runs, a step that waits for a person tries again at each ring of the inbox, and one that
        waits for a detached run also every RUN_CHECK_EVERY_S.
        """
        slots, writing = asyncio.Semaphore(PARALLEL), asyncio.Lock()
        lanes = _Lanes(len(steps))

        async def run(step: PlannedStep) -> StepStop:
            runner = StepRunner(self._build_step_kit(step.model_hint, step.tools), self._parts, turn, writing)
            lost, again = (takeovers, resumed) if step.id in begun else (0, False)
            while True:
                ring = turn.inbox.next_ring
                async with slots:
                    stop = await runner.run(step, takeovers=lost, resumed=again)
                lost, again = 0, False
                waits = stop if stop in _WAITING else None
                # Calls that a person has approved need no slot: other steps may hold them for long.
                while waits is not None:
                    limit_s = RUN_CHECK_EVERY_S if runner.may_wait_for_run(step) else None
                    if not await lanes.pause(ring, limit_s):
                        return waits
                    ring = turn.inbox.next_ring
                    waits = await runner.make_calls(step)
                if stop not in _WAITING:
                    lanes.stop()
                    return stop

        committed = len(turn.blocks)
        stops = await self._run_beside(turn, [run(step) for step in steps])
        if StepStop.HANDED_OVER in stops:
            return HandedOver()
        if {StepStop.POSTPONED} <= {*stops} <= _WAITING:
            return HandedOver(is_postponed=True)
        if StepStop.PARKED in stops and not {StepStop.ENDED, StepStop.INTERRUPTED}.intersection(stops):
            turn.emit_waiting()
            return Parked()
        did_nothing = len(turn.blocks) == committed and set(stops) == {StepStop.ENDED}
        if did_nothing and self._boundaries.find_cap(turn, turn.progress.last_round + 1) is None:
            # The same wave would follow forever.
            raise AssertionError("no step of a wave could begin, although the turn has not reached a cap")
        # If others ran meanwhile, a question may have been answered or a run ended: those that wait are tried again.
        return None

    async def _run_beside(self, turn: LeasedTurn, runs: Sequence[Coroutine[Any, Any, StepStop]]) -> list[StepStop]:
        """Run lanes to where they stop. An error of one ends them all."""
        lanes = [asyncio.create_task(run, name="step") for run in runs]
        try:
            if not lanes:
                return []
            ended, _ = await asyncio.wait(lanes, return_when=asyncio.FIRST_EXCEPTION)
            errors = [error for lane in ended if (error := lane.exception()) is not None]
            if errors:
                # A commit that is cut off may have been written or not, and the turn may still have to be closed.
                async with turn.commit_lock:
                    await self._parts.stragglers.end(*lanes)
                raise next((error for error in errors if isinstance(error, StaleFence)), errors[0])
            return [lane.result() for lane in lanes]
        finally:
            await self._parts.stragglers.end(*lanes)
            discard_errors(*lanes)

    async def _settle_interruption(self, turn: LeasedTurn) -> TurnEnd | None:
        """Fold a steer or a cancel that has stopped a wave, which ends the steps that have begun; returns the turn's
        end if it ends with it. If the signal was withdrawn meanwhile, they go on."""
        running = fold_workflow(turn.turn_blocks).running
        has_calls = any(isinstance(turn.progress.next_step(step_id), ExecuteCalls) for step_id in running)
        # Calls that wait for a person are settled first, by their lanes.
        return None if has_calls else await self._boundaries.fold(turn, turn.progress.last_round + 1, ends_steps=True)


def build_loop(kit: TurnKit, parts: LoopDependencies, turn: LeasedTurn) -> AgentLoop | AuthoredLoop | DagLoop:
    """The loop for a turn. A turn that was planned keeps its workflow and its limit of rounds, whatever is configured
    now."""
    workflow = fold_workflow(turn.turn_blocks)
    if kit.authored is not None and not workflow.is_planned:
        return AuthoredLoop(kit, parts, kit.authored)
    if workflow.is_planned and kit.workflow != "dag":
        first = next(block.body for block in turn.turn_blocks if isinstance(block.body, RoundStartBody))
        kit = replace(kit, limits=replace(kit.limits, rounds=first.limit))
    runs_steps = workflow.is_planned or kit.workflow == "dag"
    return DagLoop(kit, parts) if runs_steps and workflow.find_phase() is not Phase.LOOP else AgentLoop(kit, parts)


_WAITING: Final = frozenset({StepStop.PARKED, StepStop.POSTPONED})


class _Lanes:
    """Counts the lanes of a wave that run. A lane waits for a person or a detached run only while others run."""

    def __init__(self, running: int) -> None:
        self._running = running
        self._all_stopped = asyncio.Event()

    def stop(self) -> None:
        """A lane has stopped."""
        self._running -= 1
        if not self._running:
            self._all_stopped.set()

    async def pause(self, ring: asyncio.Event, limit_s: float | None) -> bool:
        """A lane has stopped until this rings, or for `limit_s`. Returns whether it runs again; False if all have
        stopped."""
        self.stop()
        if isinstance(await run_until(_wait_for(ring, limit_s), self._all_stopped.wait()), Ran):
            return False
        self._running += 1
        return True


async def _wait_for(ring: asyncio.Event, limit_s: float | None) -> None:
    """Return when it rings, at the latest after `limit_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await ring.wait()


def build_step_sections(turn: LeasedTurn, workflow: Workflow) -> dict[str, str]:
    """What the synthesis sees: the person's messages, the tasks of the steps, and their results."""
    steps = "\n".join(f"- {step.id}: {step.task}" for step in workflow.steps)
    results = build_results(workflow, result_chars=MAX_STEP_RESULT_CHARS)
    return {"MESSAGE": build_question(turn.turn_blocks), "STEPS": steps, "RESULTS": results}


def build_draft(turn: LeasedTurn, workflow: Workflow) -> FinishTurn:
    """What a synthesis replaces: the account of the results. It follows from the blocks, so it is not committed."""
    attempt = AttemptBody(text=build_step_account(workflow), shown="", reason=PENDING)
    return FinishTurn(turn.progress.sealed_round, attempt, None)


def build_step_account(workflow: Workflow) -> str:
    """The results for the person, in Markdown, if no model writes the answer."""
    lines = ["I could not write a complete answer. These are the results of the steps:"]
    for step in workflow.steps:
        result = workflow.results.get(step.id)
        if result is None:
            lines.append(f"**{build_label(step)}** (not started)")
        else:
            text = cut_result(workflow, result.text, MAX_STEP_RESULT_CHARS)
            lines.append(f"**{build_label(step)}** ({_STEP_STATUS_WORDS[result.status]}): {text}")
    return "\n\n".join(lines)


def _next_round(turn: LeasedTurn) -> int:
    """The number of the turn's own next round."""
    return turn.progress.sealed_round + 1
