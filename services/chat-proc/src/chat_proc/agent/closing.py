"""The closing call: when a cap is reached the model writes the answer from what there is, without tools."""

from collections.abc import Mapping
from dataclasses import replace

from chat_proc.agent.check import GiveAnswer, keep_shown
from chat_proc.agent.compaction.compacting import TurnCompaction
from chat_proc.agent.drafting import (
    RoundPlace,
    draft_answer,
    draft_missing_start,
    draft_thinking,
    write_round,
)
from chat_proc.agent.generation import Generated, Generator
from chat_proc.agent.open_turn import OpenTurn, TurnEnd, Writing
from chat_proc.agent.prompting import TurnPrompts
from chat_proc.channels.citations import cite_text, find_used_sids, index_sources
from everturn.model.blocks import BlockType
from everturn.model.llm.sources import Source
from everturn.model.problems import problem
from everturn.model.turns import Outcome
from everturn.ports.language_model import ModelFailed


class ClosingCall:
    """One model call that ends a turn; whatever text it gives is the answer."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def run(
        self, turn: OpenTurn, prompts: TurnPrompts, compaction: TurnCompaction, place: RoundPlace, cap: str
    ) -> TurnEnd:
        """`cap` says in words what was reached."""

        async def generate() -> Generated:
            request = await prompts.build_closing(place, cap)
            return await self._generator.generate(turn, request, place.round, closing=True)

        try:
            generated = await compaction.run_fitting(place, generate, may_ask=False)
        except ModelFailed as failure:
            return _no_answer(str(failure))
        place = place.at(turn.now())
        answer = _find_answer(generated, index_sources(turn.pool.rows))
        if not answer.text.strip() and not generated.stopped:
            return _no_answer(f"The turn reached {cap}.", _write(turn, place, generated, None))
        if not generated.texts.text("answer"):
            generated.texts.say("answer", 0, answer.shown, marker="answer")
        generated.texts.complete()
        return TurnEnd(Outcome.CAPPED, writing=_write(turn, place, generated, answer))


def _write(turn: OpenTurn, place: RoundPlace, generated: Generated, answer: GiveAnswer | None) -> Writing:
    drafts = [*draft_missing_start(place, turn.turn_blocks), *draft_thinking(place, generated.texts)]
    if answer is not None and answer.text:
        completions = sum(1 for block in turn.turn_blocks if block.type is BlockType.COMPLETION)
        drafts += draft_answer(place, generated.texts, answer, completions + 1)
    return write_round(drafts, generated.texts, generated.usage)


def _no_answer(detail: str, writing: Writing | None = None) -> TurnEnd:
    title = "The turn reached a limit and the model gave no answer."
    return TurnEnd(None, problem("no-closing-answer", title, 503, detail), writing or Writing())


def _find_answer(generated: Generated, sources: Mapping[int, Source]) -> GiveAnswer:
    shown, decision = generated.texts.text("answer"), generated.decision
    if shown:
        return replace(keep_shown(decision, shown), summary=decision.summary)
    text = next((action.final_answer for action in decision.actions if action.final_answer), None)
    text = text or decision.outside.strip()
    shown, used = cite_text(sources, text), find_used_sids(sources, text)
    return GiveAnswer(text, shown, used_sids=used, summary=decision.summary)
