"""The end of a turn whose answer is written: the synthesis of the answer, the working summary and suggestions.

The answer is on the timeline as a pending attempt while this runs, so no crash loses it, and another worker repeats
only this. Nothing here can fail the turn: the loop's own text is the answer if the synthesis fails, and the summary is
left to the rules of compaction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import structlog

from chat_proc.agent.drafting import GiveAnswer, RoundContext, draft_cut_notice, draft_missing_start, write_round
from chat_proc.agent.extra_calls import build_messages, build_question, call_for_turn, keep_request, shorten
from chat_proc.agent.generation import Generated, Generator
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.prompt.system import add_instructions, load_topic
from chat_proc.channels.codec import Codec
from chat_proc.models.roles import SUMMARY, SYNTHESIS
from chat_proc.models.structured import StructuredLimits
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from everturn.core.refs import completion_ref, working_summary_ref
from everturn.models.port import ModelFailed, ModelRequest
from everturn.timeline.blocks import (
    AttemptBody,
    Block,
    BlockType,
    CompletionBody,
    SummaryBody,
    ToolCallBody,
    ToolResultBody,
)
from everturn.timeline.inert import is_blank
from everturn.timeline.progress import FinishTurn
from everturn.timeline.turns import CONTROL_KINDS, CutReason, Outcome

_log = structlog.get_logger(__name__)

MAX_CALL_RESULT_CHARS = 2_000
"""How much of one result the synthesis sees."""
MAX_SHOWN_CALLS = 40
"""The last calls that these models see; the others are only counted."""
MAX_ANSWER_CHARS = 20_000
MAX_NOTES_RESULT_CHARS = 500
"""How much of one result the call for the working summary sees."""
MAX_SUMMARY_CHARS = 4_000
MAX_FOLLOWUPS = 3
MAX_FOLLOWUP_CHARS = 200
NOTES_LIMITS = StructuredLimits(limit_s=15.0, max_output_tokens=2_048, max_reply_chars=12_000)
"""The person has read the answer and waits only for the end of the turn."""
NOTES_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "followups": {"type": "array", "items": {"type": "string"}}},
    "required": ["summary", "followups"],
}
PROSE: Final = Codec("native", "", "")
"""The form of a reply whose whole text is the answer."""


@dataclass(frozen=True, slots=True)
class TurnNotes:
    """The working summary of a turn and suggestions for the next one."""

    summary: str = ""
    followups: tuple[str, ...] = ()


NO_NOTES: Final = TurnNotes()


class NotWritten(Enum):
    """Why a synthesis wrote no answer."""

    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """A steer or a cancel prevented or ended it."""


class TurnFinisher:
    """Ends turns whose answer is pending; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._kit = kit
        self._tracing = parts.tracing
        self._synthesis_prompt = add_instructions(load_topic("synthesis"), kit.instructions)
        self._generator = Generator(kit, parts, model=kit.synthesis_model or kit.model, role=SYNTHESIS)

    async def run(
        self, turn: LeasedTurn, codec: Codec, pending: FinishTurn, limit: int, *, takeovers: int = 0
    ) -> TurnEnd:
        """The end of the turn with the answer that waited; if that is a draft, with its synthesis. Signals prevent or
        end these calls: the loop decides what becomes of the answer. `takeovers` workers may have died in its call."""
        if pending.attempt.is_draft:
            sections = _build_call_sections(turn, MAX_CALL_RESULT_CHARS, "DRAFT", pending.attempt.text)
            request = self.build_request(sections)
            self.record_lost_calls(turn, request, takeovers)
            end = await self.synthesize(turn, codec, pending, limit, request)
            if isinstance(end, TurnEnd):
                return end
        return await self.keep_answer(turn, codec, pending)

    def build_request(self, sections: Mapping[str, str]) -> ModelRequest:
        """The request for a synthesis of what these sections say."""
        return ModelRequest(build_messages(self._synthesis_prompt, sections), self._kit.limits.max_output_tokens)

    def record_lost_calls(self, turn: LeasedTurn, request: ModelRequest, takeovers: int) -> None:
        """Record the estimated input of a synthesis for each earlier worker, which may have died in it. The next commit
        writes it."""
        for _ in range(takeovers):
            turn.record_usage(self._generator.estimate_lost_call(request))

    async def synthesize(
        self,
        turn: LeasedTurn,
        codec: Codec,
        pending: FinishTurn,
        limit: int,
        request: ModelRequest,
        *,
        usable_cuts: Collection[CutReason] = (),
    ) -> TurnEnd | NotWritten:
        """The end of the turn with an answer in place of the draft. A part of one is taken back, because the draft is
        whole, unless it was cut for one of the reasons `usable_cuts`.

        The call is a round of its own, because that of the draft is closed.
        """
        if any(signal.kind in CONTROL_KINDS for signal in await turn.inbox.load_unseen()):
            return NotWritten.INTERRUPTED
        context = RoundContext(turn.turn_id, pending.round + 1, limit, turn.now())
        keep_request(turn, self._kit, self._generator.model.traits, request, context.round)
        try:
            generated = await self._generator.generate(turn, request, PROSE, context.round, closing=True)
        except ModelFailed as failure:
            _log.warning("Could not synthesize the answer", turn_id=turn.turn_id, error=failure.detail)
            return NotWritten.FAILED
        cut = generated.decision.stopped_by
        is_usable = cut is None or cut in usable_cuts
        if generated.stopped or not is_usable or is_blank(generated.texts.text("answer")):
            turn.rewind()
            return NotWritten.INTERRUPTED if generated.stopped else NotWritten.FAILED
        generated.texts.complete()
        answer = _read_synthesis(generated)
        answer = _add_notes(answer, await self._write_notes(turn, codec, answer.text))
        return _build_end(turn, context.at(turn.now()), pending, generated, answer)

    async def keep_answer(self, turn: LeasedTurn, codec: Codec, pending: FinishTurn) -> TurnEnd:
        """The end of the turn with the answer that waited, as it is."""
        return end_with_attempt(turn, pending, await self._write_notes(turn, codec, pending.attempt.text))

    async def _write_notes(self, turn: LeasedTurn, codec: Codec, answer: str) -> TurnNotes:
        """Nothing if a signal waits: another round may follow the answer."""
        model = self._kit.find_notes_model(codec)
        if model is None or await turn.inbox.load_unseen():
            return NO_NOTES
        sections = _build_call_sections(turn, MAX_NOTES_RESULT_CHARS, "ANSWER", answer)
        notes = await call_for_turn(
            turn,
            model,
            SUMMARY,
            build_messages(load_topic("turn_notes"), sections),
            NOTES_SCHEMA,
            parse_fn=_read_notes,
            default_value=NO_NOTES,
            limits=NOTES_LIMITS,
            tracing=self._tracing,
        )
        return notes or NO_NOTES


def end_with_attempt(turn: LeasedTurn, pending: FinishTurn, notes: TurnNotes = NO_NOTES) -> TurnEnd:
    """The end of the turn with the answer that waited, as it is, and the notes."""
    context = RoundContext(turn.turn_id, pending.round, pending.round, turn.now())
    return _build_end(turn, context, pending, None, _add_notes(_read_answer(pending.attempt), notes))


def hide(answer: GiveAnswer) -> GiveAnswer:
    """The answer as the draft of a synthesis."""
    return replace(answer, shown="")


def _build_call_sections(turn: LeasedTurn, result_chars: int, answer_title: str, answer: str) -> dict[str, str]:
    """The messages of the person, the calls with the beginnings of their results, and the answer."""
    return {
        "MESSAGE": build_question(turn.own_blocks),
        "STEPS": render_calls(turn.own_blocks, result_chars=result_chars) or "none",
        answer_title: answer[:MAX_ANSWER_CHARS],
    }


def render_calls(turn_blocks: Sequence[Block], *, result_chars: int) -> str:
    """The last calls that the model made, with the beginnings of their results; empty without any."""
    results = {block.call_id: block.body for block in turn_blocks if isinstance(block.body, ToolResultBody)}
    calls = [
        _render_call(block.body, results.get(block.call_id), result_chars)
        for block in turn_blocks
        if isinstance(block.body, ToolCallBody) and block.body.parent is None
    ]
    left = len(calls) - MAX_SHOWN_CALLS
    return "\n".join([*([f"({left} earlier calls are not shown)"] if left > 0 else []), *calls[-MAX_SHOWN_CALLS:]])


def _render_call(call: ToolCallBody, result: ToolResultBody | None, result_chars: int) -> str:
    if result is None:
        return f"- {call.tool_id}: no result"
    files = "".join(f"\nFile: {file.filename} {file.ref}" for file in result.artifacts if file.visibility == "external")
    return f"- {call.tool_id} ({result.status}): {shorten(result.text, result_chars)}{files}"


def _read_notes(raw: Mapping[str, Any]) -> TurnNotes:
    followups = tuple(text.strip()[:MAX_FOLLOWUP_CHARS] for text in raw["followups"] if text.strip())
    return TurnNotes(raw["summary"].strip()[:MAX_SUMMARY_CHARS], followups[:MAX_FOLLOWUPS])


def _read_answer(attempt: AttemptBody) -> GiveAnswer:
    return GiveAnswer(
        text=attempt.text,
        # Where nothing was shown, the commit resolves the citations.
        shown=attempt.shown or attempt.text,
        followups=attempt.followups,
        used_sids=attempt.sources_used,
        cut_reason=attempt.cut_reason,
    )


def _read_synthesis(generated: Generated) -> GiveAnswer:
    decision, shown = generated.decision, generated.texts.text("answer")
    raw, used = (decision.answer.raw, decision.answer.used_sids) if decision.answer else (shown, ())
    return GiveAnswer(raw, shown, used_sids=used, cut_reason=decision.cut_reason)


def _add_notes(answer: GiveAnswer, notes: TurnNotes) -> GiveAnswer:
    return replace(answer, summary=notes.summary, followups=answer.followups or notes.followups)


def _build_end(
    turn: LeasedTurn, context: RoundContext, pending: FinishTurn, generated: Generated | None, answer: GiveAnswer
) -> TurnEnd:
    outcome = Outcome.COMPLETED if answer.cut_reason is None else Outcome.CUT
    content = _write(turn, context, pending, generated, answer)
    return TurnEnd(outcome, content=content, cut_reason=answer.cut_reason)


def _write(
    turn: LeasedTurn, context: RoundContext, pending: FinishTurn, generated: Generated | None, answer: GiveAnswer
) -> CommitContent:
    drafts = [] if generated is None else draft_missing_start(context, turn.progress)
    if answer.summary:
        ref, summary = working_summary_ref(turn.turn_id), SummaryBody(text=answer.summary)
        drafts.append(context.draft(BlockType.WORKING_SUMMARY, ref, summary))
    body = CompletionBody(
        text=answer.text,
        shown=answer.shown if answer.shown != answer.text else None,
        instance=pending.attempt.instance,
        followups=answer.followups,
        sources_used=answer.used_sids,
    )
    ref = completion_ref(turn.turn_id, turn.progress.completions + 1)
    ts_first = pending.ts_first if generated is None else generated.texts.first_ts("answer")
    drafts.append(context.draft(BlockType.COMPLETION, ref, body, ts_first=ts_first))
    drafts += draft_cut_notice(context, answer.cut_reason)
    if generated is not None:
        return write_round(drafts, generated.texts)
    # Clients have not seen a draft that becomes the answer.
    return CommitContent(drafts=tuple(drafts), rewind=pending.attempt.is_draft)
