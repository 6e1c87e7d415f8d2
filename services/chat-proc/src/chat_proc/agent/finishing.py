"""The end of a turn whose answer is written: the synthesis of the answer, the working summary and suggestions.

The answer is on the timeline as a pending attempt while this runs, so no crash loses it, and another worker repeats
only this. Nothing here can fail the turn: the loop's own text is the answer if the synthesis fails, and the summary is
left to the rules of compaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from chat_proc.agent.drafting import GiveAnswer, RoundContext, draft_cut_notice, draft_missing_start, write_round
from chat_proc.agent.generation import Generated, Generator
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.prompt.system import load_topic
from chat_proc.channels.codec import Codec
from chat_proc.models.calls import CallTracker, describe_turn
from chat_proc.models.roles import SUMMARY, SYNTHESIS
from chat_proc.models.structured import StructuredLimits, structured_call
from chat_proc.turn.leased import CommitContent, LeasedTurn, TurnEnd
from chat_proc.turn.manifests import RequestRecord
from everturn.core.cancellation import Ran, run_until
from everturn.core.refs import completion_ref, working_summary_ref
from everturn.models.port import LanguageModel, ModelFailed, ModelRequest, PromptMessage, TextPart
from everturn.timeline.blocks import (
    AttemptBody,
    Block,
    BlockType,
    CompletionBody,
    EventBody,
    PromptBody,
    SignalBody,
    SummaryBody,
    ToolCallBody,
    ToolResultBody,
)
from everturn.timeline.inert import is_blank, make_inert
from everturn.timeline.progress import FinishTurn
from everturn.timeline.turns import Outcome

_log = structlog.get_logger(__name__)

MAX_RESULT_CHARS = 2_000
"""How much of one result the synthesis sees."""
MAX_STEPS = 40
"""The last steps that a trace shows; the others are only counted."""
MAX_QUESTION_CHARS = 20_000
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
_PROSE: Final = Codec("native", "", "")
"""Reads a reply whose whole text is the answer."""


@dataclass(frozen=True, slots=True)
class TurnNotes:
    """The working summary of a turn and suggestions for the next one."""

    summary: str = ""
    followups: tuple[str, ...] = ()


class TurnFinisher:
    """Ends turns whose answer is pending; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._kit = kit
        self._tracing = parts.tracing
        self._synthesis_prompt = load_topic("synthesis")
        self._generator = Generator(kit, parts, model=kit.synthesis_model or kit.model, role=SYNTHESIS)

    async def run(
        self,
        turn: LeasedTurn,
        codec: Codec,
        pending: FinishTurn,
        limit: int,
        *,
        trace: str | None = None,
        takeovers: int = 0,
    ) -> TurnEnd:
        """The end of the turn with the answer that waited. Signals prevent or end these calls: the loop decides what
        becomes of the answer. `trace` is what the synthesis sees in place of the turn's calls; `takeovers` workers may
        have died in its call."""
        context = RoundContext(turn.turn_id, pending.round, limit, turn.now())
        attempt, generated = pending.attempt, None
        is_interrupted = bool(await turn.inbox.load_unseen())
        if is_hidden(attempt):
            request = self._build_request(turn, attempt, trace)
            for _ in range(takeovers):
                turn.record_usage(self._generator.estimate_lost_call(request))
            following = replace(context, round=pending.round + 1)
            generated = None if is_interrupted else await self._synthesize(turn, following, request)
            context = context if generated is None else following
        answer = _read_answer(attempt) if generated is None else _read_synthesis(generated)
        notes = TurnNotes()
        if codec.name != "channels" and self._kit.summary_model is not None and not is_interrupted:
            notes = await self._write_notes(self._kit.summary_model, turn, answer.text)
        answer = replace(answer, summary=notes.summary or None, followups=answer.followups or notes.followups)
        context = context.at(turn.now())
        content = _write(turn, context, pending, generated, answer)
        outcome = Outcome.COMPLETED if answer.cut_reason is None else Outcome.CUT
        return TurnEnd(outcome, content=content, cut_reason=answer.cut_reason)

    def _build_request(self, turn: LeasedTurn, attempt: AttemptBody, trace: str | None) -> ModelRequest:
        if trace is None:
            trace = build_trace(turn.own_blocks, attempt.text, answer_title="DRAFT", result_chars=MAX_RESULT_CHARS)
        return ModelRequest(_build_messages(self._synthesis_prompt, trace), self._kit.limits.max_output_tokens)

    async def _synthesize(self, turn: LeasedTurn, context: RoundContext, request: ModelRequest) -> Generated | None:
        """None if the model fails, writes nothing, or is interrupted: the draft is whole.

        The call is a round of its own, because that of the attempt is closed.
        """
        turn.manifests.keep(self._record(turn, context, request))
        try:
            generated = await self._generator.generate(turn, request, _PROSE, context.round, closing=True)
        except ModelFailed as failure:
            _log.warning("Could not synthesize the answer", turn_id=turn.turn_id, error=failure.detail)
            return None
        is_partial = generated.stopped or generated.decision.stopped_by == "provider_error"
        if is_partial or is_blank(generated.texts.text("answer")):
            turn.record_usage(generated.usage)
            turn.rewind()
            return None
        generated.texts.complete()
        return generated

    def _record(self, turn: LeasedTurn, context: RoundContext, request: ModelRequest) -> RequestRecord:
        model = self._generator.model.traits.ledger_name
        return RequestRecord(
            request=request,
            items=(),
            turn_id=turn.turn_id,
            round=context.round,
            model=model,
            sent_at=context.now,
            ratio=self._kit.ratios.of(model),
            preamble=turn.manifests.keep_preamble(self._synthesis_prompt),
        )

    async def _write_notes(self, model: LanguageModel, turn: LeasedTurn, answer: str) -> TurnNotes:
        trace = build_trace(turn.own_blocks, answer, answer_title="ANSWER", result_chars=MAX_NOTES_RESULT_CHARS)
        about = describe_turn(turn.lease.conversation_id, turn.turn_id)
        tracker = CallTracker(model.traits, SUMMARY, tracing=self._tracing, turn=about)
        call = structured_call(
            model,
            _build_messages(load_topic("turn_notes"), trace),
            NOTES_SCHEMA,
            parse_fn=_read_notes,
            default_value=TurnNotes(),
            limits=NOTES_LIMITS,
            tracker=tracker,
        )
        try:
            with turn.activity.open_call("model call"):
                ran = await run_until(turn.inbox.wait_for_control(), call)
        finally:
            for usage in tracker.build_events():
                turn.record_usage(usage)
        return ran.value.value if isinstance(ran, Ran) else TurnNotes()


def is_hidden(attempt: AttemptBody) -> bool:
    """Whether an answer was not shown, because the synthesis writes the one that is."""
    return attempt.shown == ""


def hide(answer: GiveAnswer) -> GiveAnswer:
    """The answer as the draft of a synthesis."""
    return replace(answer, shown="")


def build_trace(turn_blocks: Sequence[Block], answer: str, *, answer_title: str, result_chars: int) -> str:
    """The messages of the person, the calls with the beginnings of their results, and the answer."""
    asked = [
        block.body.text
        for block in turn_blocks
        if isinstance(block.body, PromptBody | SignalBody | EventBody) and block.body.text
    ]
    sections = {
        "MESSAGE": "\n\n".join(asked)[:MAX_QUESTION_CHARS],
        "STEPS": render_calls(turn_blocks, result_chars=result_chars) or "none",
        answer_title: answer[:MAX_ANSWER_CHARS],
    }
    return "\n\n".join(f"[{title}]\n{make_inert(text)}" for title, text in sections.items())


def render_calls(turn_blocks: Sequence[Block], *, result_chars: int) -> str:
    """The last calls that the model made, with the beginnings of their results; empty without any."""
    results = {block.call_id: block.body for block in turn_blocks if isinstance(block.body, ToolResultBody)}
    calls = [
        _render_call(block.body, results.get(block.call_id), result_chars)
        for block in turn_blocks
        if isinstance(block.body, ToolCallBody) and block.body.parent is None
    ]
    left = len(calls) - MAX_STEPS
    return "\n".join([*([f"({left} earlier calls are not shown)"] if left > 0 else []), *calls[-MAX_STEPS:]])


def _render_call(call: ToolCallBody, result: ToolResultBody | None, result_chars: int) -> str:
    if result is None:
        return f"- {call.tool_id}: no result"
    text = result.text if len(result.text) <= result_chars else f"{result.text[:result_chars]}..."
    files = "".join(f"\nFile: {file.filename} {file.ref}" for file in result.artifacts if file.visibility == "external")
    return f"- {call.tool_id} ({result.status}): {text}{files}"


def _build_messages(system: str, trace: str) -> tuple[PromptMessage, ...]:
    return PromptMessage("system", (TextPart(system),)), PromptMessage("user", (TextPart(trace),))


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
        return write_round(drafts, generated.texts, generated.usage)
    # Clients have not seen a draft that becomes the answer.
    return CommitContent(drafts=tuple(drafts), rewind=is_hidden(pending.attempt))
