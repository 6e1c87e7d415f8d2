"""The closing call: when a cap is reached, the model writes the answer from what it has so far, without tools."""

from collections.abc import Mapping
from dataclasses import replace

from chat_proc.agent.compaction import TurnCompaction
from chat_proc.agent.drafting import (
    GiveAnswer,
    RoundContext,
    draft_answer,
    draft_cut_notice,
    draft_missing_start,
    draft_thinking,
    keep_shown,
    write_round,
)
from chat_proc.agent.generation import Generated, Generator
from chat_proc.agent.last_resort import build_account, find_usable_text, read_usable_text
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.agent.round import build_refusal_problem
from chat_proc.channels.citations import cite_text, find_used_sids, index_sources
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from everturn.core.errors import Problem, problem
from everturn.core.refs import completion_ref
from everturn.models.port import ModelFailed
from everturn.timeline.blocks import BlockType
from everturn.timeline.bodies import CompletionBody
from everturn.timeline.inert import is_blank
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason, Outcome


class ClosingCall:
    """One model call that ends a turn; any text it returns is the answer."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def run(
        self, turn: LeasedTurn, prompts: TurnPrompts, compaction: TurnCompaction, context: RoundContext, cap: str
    ) -> TurnEnd:
        """`cap` names the reached limit in words."""

        async def generate() -> Generated:
            request = await prompts.build_closing(context, cap)
            return await self._generator.generate(turn, request, context.round, closing=True)

        try:
            generated = await compaction.run_fitting(context, generate, allow_model=False)
        except ModelFailed as failure:
            return _end_without_call(turn, context.at(turn.now()), cap, failure.detail)
        context = context.at(turn.now())
        answer = _find_answer(generated, index_sources(turn.pool.rows))
        if is_blank(answer.text) and not generated.stopped:
            answer = _find_last_resort(turn, cap)
        if is_blank(answer.text) and not generated.stopped:
            content = _write(turn, context, generated, None)
            return TurnEnd(None, _explain_no_answer(generated.decision.stopped_by, f"The turn reached {cap}."), content)
        if not generated.texts.text("answer"):
            generated.texts.say("answer", 0, answer.shown, marker="answer")
        generated.texts.complete()
        content = _write(turn, context, generated, answer)
        return TurnEnd(Outcome.CAPPED, content=content, cut_reason=answer.cut_reason)


def _find_last_resort(turn: LeasedTurn, cap: str) -> GiveAnswer:
    """What the model wrote in a wrong form earlier in the turn, otherwise a list of what was done."""
    text = find_usable_text(turn.turn_blocks) or build_account(turn.turn_blocks, cap)
    return GiveAnswer(text, text)


def _end_without_call(turn: LeasedTurn, context: RoundContext, cap: str, why: str) -> TurnEnd:
    """The end of a turn whose closing call failed."""
    answer = _find_last_resort(turn, cap)
    if is_blank(answer.text):
        return TurnEnd(None, _explain_no_answer(None, f"The turn reached {cap}. {why}"))
    body = CompletionBody(text=answer.text)
    number = _count_completions(turn) + 1
    completion = context.draft(BlockType.COMPLETION, completion_ref(context.turn_id, number), body)
    drafts = (*draft_missing_start(context, turn.turn_blocks), completion)
    return TurnEnd(Outcome.CAPPED, content=CommitContent(drafts=drafts, rewind=True))


def _count_completions(turn: LeasedTurn) -> int:
    return sum(1 for block in turn.turn_blocks if block.type is BlockType.COMPLETION)


def _write(turn: LeasedTurn, context: RoundContext, generated: Generated, answer: GiveAnswer | None) -> CommitContent:
    drafts = [*draft_missing_start(context, turn.turn_blocks), *draft_thinking(context, generated.texts)]
    if answer is not None and answer.text:
        drafts += draft_answer(context, generated.texts, answer, _count_completions(turn) + 1)
        drafts += draft_cut_notice(context, answer.cut_reason)
    return write_round(drafts, generated.texts, generated.usage)


def _explain_no_answer(stopped_by: CutReason | None, reached: str) -> Problem:
    """Why there is no answer; `stopped_by` is what ended the closing reply, `reached` states what led to the closing
    call."""
    match stopped_by:
        case "refusal" | "content_filter":
            return build_refusal_problem(stopped_by)
        case "length" | "size_limit":
            title = "The model reached its output limit before it answered"
            advice = "Its closing reply ended at the output limit of one reply. Ask for less in one message."
            return problem("output-limit", title, 503, f"{reached} {advice}")
        case _:
            title = "The model returned no usable answer"
            return problem("no-closing-answer", title, 503, reached)


def _find_answer(generated: Generated, sources: Mapping[int, Source]) -> GiveAnswer:
    shown, decision = generated.texts.text("answer"), generated.decision
    if shown:
        return replace(keep_shown(decision, shown), summary=decision.summary)
    text = next((action.final_answer for action in decision.actions if action.final_answer), None)
    cut_reason = None
    if not text:
        text, cut_reason = read_usable_text(decision.outside), decision.stopped_by
    shown, used = cite_text(sources, text), find_used_sids(sources, text)
    return GiveAnswer(text, shown, used_sids=used, summary=decision.summary, cut_reason=cut_reason if text else None)
