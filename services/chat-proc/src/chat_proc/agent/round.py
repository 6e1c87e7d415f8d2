"""One round: call the model, check its decision, and commit it before anything is executed (C1)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from chat_proc.agent.approving import ApprovalGate
from chat_proc.agent.closing import build_failure_end, build_refusal_problem
from chat_proc.agent.compaction import RequestRoom
from chat_proc.agent.drafting import (
    GiveAnswer,
    Repair,
    RoundContext,
    Work,
    check_decision,
    draft_answer,
    draft_attempt,
    draft_codec_switch,
    draft_cut_notice,
    draft_interrupted,
    draft_missing_start,
    draft_notices,
    draft_plan_marks,
    draft_repair,
    draft_thinking,
    draft_work,
    find_begun_action,
    keep_shown,
    write_round,
)
from chat_proc.agent.finishing import hide
from chat_proc.agent.generation import Generated, Generator
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.prompt.system import PLAN_TOOL
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.agent.signal_folding import check_finalizing, ends_work, finalize_tools
from chat_proc.agent.tool_calls import effect_change
from chat_proc.channels.codec import Codec
from chat_proc.channels.prose import read_usable_text
from chat_proc.timeline.present import current_plan
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from everturn.core.ids import CallId
from everturn.core.metrics import CODEC_SWITCHES, ROUND_SECONDS, ROUNDS
from everturn.events.model import ChatPlan, ChatStep
from everturn.events.turn_view import build_refused_step, build_started_step, build_step_event
from everturn.events.views import StepView
from everturn.models.port import ContextLimitExceeded, ModelFailed
from everturn.timeline.blocks import BlockDraft, NoticeBody, ToolCallBody, ToolCodeBody
from everturn.timeline.plans import PlanMoment, build_ack, mark_steps, read_marks
from everturn.timeline.turns import CutReason, Outcome


class RoundRunner:
    """Runs rounds of any turn; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies, generator: Generator, gate: ApprovalGate) -> None:
        self._generator = generator
        self._gate = gate
        self._kit = kit
        self._catalog = kit.catalog
        self._limits = kit.limits
        self._next_call_id = parts.next_call_id
        self._failpoints = parts.failpoints

    async def run(
        self, turn: LeasedTurn, prompts: TurnPrompts, room: RequestRoom, context: RoundContext
    ) -> TurnEnd | None:
        """Return the end of the turn if the model answered or can't answer; None if the turn continues. Raises
        ContextLimitExceeded."""
        with ROUND_SECONDS.time():
            return await self._run(turn, prompts, room, context)

    async def _run(
        self, turn: LeasedTurn, prompts: TurnPrompts, room: RequestRoom, context: RoundContext
    ) -> TurnEnd | None:
        generated = await self._generate(turn, prompts, room, context)
        if isinstance(generated, TurnEnd):
            return generated
        ROUNDS.inc()
        if generated.switched:
            CODEC_SWITCHES.inc()
        context = context.at(turn.now())
        generated.texts.complete()
        if generated.stopped:
            return await self._save_interrupted(turn, context, generated)
        answer_shown = generated.texts.text("answer")
        verdict = check_decision(generated.decision, answer_shown, self._catalog)
        if context.finalize:
            verdict = check_finalizing(verdict, finalize_tools(self._catalog.specs))
        match verdict:
            case Repair() if generated.decision.stopped_by in ("refusal", "content_filter"):
                return self._build_refusal(turn, context, generated, generated.decision.stopped_by)
            case Repair() as repair:
                await self._commit_repair(turn, context, generated, repair)
            case Work(items=(GiveAnswer() as answer,)) as work if self._finishes_later(turn, prompts.codec):
                held = hide(answer) if self._finishes_by_synthesis(turn, prompts.codec) else answer
                await self._commit_work(turn, context, generated, replace(work, items=(held,)))
            case Work(items=(GiveAnswer() as answer,)) as work:
                return self._build_end(turn, context, generated, answer, draft_notices(context, work))
            case Work(answer=None) as work if context.round >= context.limit:
                tools = ", ".join(use.spec.tool_id for use in work.calls)
                late = Repair("last_round", f"This was the last round; {tools} was not called.")
                await self._commit_repair(turn, context, generated, late)
            case work:
                await self._commit_work(turn, context, generated, work)
        return None

    def _finishes_later(self, turn: LeasedTurn, codec: Codec) -> bool:
        """Whether more calls follow the answer, which is on the timeline meanwhile: see `finishing`."""
        needs_call = self._kit.synthesizes(codec) or self._kit.find_notes_model(codec) is not None
        return turn.progress.calls > 0 and needs_call

    def _finishes_by_synthesis(self, turn: LeasedTurn, codec: Codec) -> bool:
        return turn.progress.calls > 0 and self._kit.synthesizes(codec)

    async def record_lost_calls(self, turn: LeasedTurn, prompts: TurnPrompts, takeovers: int) -> None:
        """Record the estimated input of one model call for each earlier worker, which may have died in a call of this
        round.

        The next commit writes it, and only a commit resets the turn's attempts to 0.
        """
        context = RoundContext(turn.turn_id, 0, self._limits.rounds, turn.now())
        lost = self._generator.estimate_lost_call(await prompts.build(context))
        for _ in range(takeovers):
            turn.record_usage(lost)

    async def _generate(
        self, turn: LeasedTurn, prompts: TurnPrompts, room: RequestRoom, context: RoundContext
    ) -> Generated | TurnEnd:

        async def generate() -> Generated:
            request = await prompts.build(context)
            hides_answer = self._finishes_by_synthesis(turn, prompts.codec)
            return await self._generator.generate(
                turn, request, prompts.codec, context.round, hides_answer=hides_answer
            )

        try:
            return await room.run_fitting(context, generate)
        except ContextLimitExceeded:
            # The caller has another way to go on.
            raise
        except ModelFailed as failure:
            return build_failure_end(turn, context.at(turn.now()), failure)

    def _build_refusal(
        self,
        turn: LeasedTurn,
        context: RoundContext,
        generated: Generated,
        reason: Literal["refusal", "content_filter"],
    ) -> TurnEnd:
        """The end of a turn whose model declined: with the model's own text, or with a problem."""
        if text := read_usable_text(generated.decision.outside):
            return self._build_end(turn, context, generated, GiveAnswer(text, text, cut_reason=reason), ())
        content = write_round(_draft_begin(turn, context, generated), generated.texts)
        return TurnEnd(None, build_refusal_problem(reason), content)

    def _build_end(
        self,
        turn: LeasedTurn,
        context: RoundContext,
        generated: Generated,
        answer: GiveAnswer,
        notices: Sequence[BlockDraft],
    ) -> TurnEnd:
        marks = self._mark_plan(turn, context, f"{answer.notes}\n{generated.decision.beside}")
        answered = draft_answer(context, generated.texts, answer, turn.progress.completions + 1)
        drafts = [
            *_draft_begin(turn, context, generated),
            *marks.drafts,
            *notices,
            *answered,
            *draft_cut_notice(context, answer.cut_reason),
        ]
        content = write_round(drafts, generated.texts)
        missing = [(step, context.round) for step in _build_steps(notices)]
        return _end_with_answer(answer.cut_reason, replace(content, after=(*marks.after, *missing)))

    async def _commit_work(self, turn: LeasedTurn, context: RoundContext, generated: Generated, work: Work) -> None:
        changes_plan = any(use.spec.tool_id == PLAN_TOOL for use in work.calls)
        notes = "\n".join((*(item.notes for item in work.items), generated.decision.beside))
        marks = CommitContent() if changes_plan else self._mark_plan(turn, context, notes)
        call_ids = [self._next_call_id() for _ in work.calls]
        drafts = draft_work(context, generated.texts, work, call_ids)
        content = write_round([*_draft_begin(turn, context, generated), *marks.drafts, *drafts], generated.texts)
        questions = await self._gate.draft_questions(turn, _calls_of(drafts), context)
        effects = [
            effect_change(
                call_id,
                ToolCallBody(tool_id=use.spec.tool_id, params=use.raw_params),
                use.spec.find_effect(use.raw_params),
            )
            for call_id, use in zip(call_ids, work.calls, strict=True)
        ]
        started = [(step, context.round) for step in _build_steps(drafts)]
        self._failpoints.hit("turn.before_c1")
        decided = replace(content, effects=tuple(effects), after=(*marks.after, *started))
        await turn.commit(decided.plus(questions))
        self._failpoints.hit("turn.after_c1")

    async def _commit_repair(
        self, turn: LeasedTurn, context: RoundContext, generated: Generated, repair: Repair
    ) -> None:
        drafts = [*_draft_begin(turn, context, generated), *draft_repair(context, repair, generated.decision.raw)]
        missing = tuple((step, context.round) for step in _build_steps(drafts))
        await turn.commit(replace(write_round(drafts, generated.texts), after=missing))

    async def _save_interrupted(self, turn: LeasedTurn, context: RoundContext, generated: Generated) -> None:
        """Keep what was shown of a reply that a steer, a cancel or the time limit of the turn cut off. The next round
        folds the signal, if there is one."""
        shown = generated.texts.text("answer")
        drafts = _draft_begin(turn, context, generated)
        ends = any(ends_work(signal) for signal in await turn.inbox.load_unseen())
        if shown and ends:
            n = turn.progress.completions + 1
            drafts += draft_answer(context, generated.texts, keep_shown(generated.decision, shown), n)
        elif shown:
            drafts += draft_attempt(context, generated.texts, generated.decision, "steered")
        elif begun := find_begun_action(generated.decision.raw):
            drafts.append(draft_interrupted(context, begun))
        content = write_round(drafts, generated.texts)
        # An answer of an open turn has no event of its own.
        content = replace(content, rewind=content.rewind or bool(shown and ends))
        await turn.commit(content)

    def _mark_plan(self, turn: LeasedTurn, context: RoundContext, notes: str) -> CommitContent:
        plan = current_plan(turn.shown) if read_marks(notes) else None
        marked = mark_steps(plan, notes, moment=PlanMoment(turn.turn_id, context.now)) if plan else None
        if plan is None or marked is None:
            return CommitContent()
        drafts = draft_plan_marks(context, marked, build_ack(plan, marked), turn.progress.plan_acks + 1)
        return CommitContent(drafts=tuple(drafts), after=((ChatPlan(plan=marked), context.round),))


def _end_with_answer(cut_reason: CutReason | None, content: CommitContent) -> TurnEnd:
    outcome = Outcome.COMPLETED if cut_reason is None else Outcome.CUT
    return TurnEnd(outcome, content=content, cut_reason=cut_reason)


def _draft_begin(turn: LeasedTurn, context: RoundContext, generated: Generated) -> list[BlockDraft]:
    switch = draft_codec_switch(context) if generated.switched and not turn.progress.calls_natively else []
    return [*draft_missing_start(context, turn.progress), *draft_thinking(context, generated.texts), *switch]


def _calls_of(drafts: Sequence[BlockDraft]) -> dict[CallId, ToolCallBody]:
    return {draft.call_id: draft.body for draft in drafts if draft.call_id and isinstance(draft.body, ToolCallBody)}


def _build_steps(drafts: Sequence[BlockDraft]) -> list[ChatStep]:
    """The calls among these blocks as started steps; those that are refused fail at once."""
    programs = {draft.call_id: draft.body.text for draft in drafts if isinstance(draft.body, ToolCodeBody)}
    steps: list[StepView] = []
    for draft in drafts:
        match draft.body:
            case ToolCallBody() as call:
                steps.append(build_started_step(draft, call, programs.get(draft.call_id)))
            case NoticeBody() as notice:
                if failed := build_refused_step(draft, notice):
                    steps += [failed.model_copy(update={"status": "started", "error": None}), failed]
            case _:
                """Clients don't see the other blocks as steps."""
    return [build_step_event(step) for step in steps]
