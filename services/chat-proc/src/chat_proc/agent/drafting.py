"""Checks the model's decision, and builds the blocks of a round from it. Pure: the order here is the order on the
timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, Literal

from pydantic import BaseModel

from chat_proc.agent.generation import RoundTexts
from chat_proc.catalog.tool import ToolRegistry, ToolSpec
from chat_proc.channels.actions import Action, Decision, Problem
from chat_proc.channels.actions import ToolCall as DecidedCall
from chat_proc.turn.leased import CommitContent
from everturn.core.errors import Invalid
from everturn.core.ids import CallId, TurnId
from everturn.core.refs import (
    call_ref,
    completion_ref,
    notes_ref,
    plan_ack_ref,
    plan_ref,
    round_ref,
    working_summary_ref,
)
from everturn.events.turn_view import build_written_text
from everturn.timeline.blocks import (
    AttemptBody,
    BlockDraft,
    BlockType,
    Body,
    CompletionBody,
    NotesBody,
    NoticeBody,
    PlanAckBody,
    PlanBody,
    RawDecisionBody,
    RoundStartBody,
    SummaryBody,
    ThinkingBody,
    ToolCallBody,
    ToolCodeBody,
)
from everturn.timeline.inert import is_blank
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.progress import CALLS_NATIVELY, INTERRUPTED, PENDING, TurnProgress
from everturn.timeline.turns import CutReason

MAX_SENTENCES = 3
"""Maximum problems named in one notice; more would hide the first."""

CUT_CODE: Final = "answer_cut"
"""Code of the notice after an answer that is incomplete."""
MAX_TOOL_CHARS: Final = 80
"""How much of the name of a missing tool is shown."""
MAX_RAW_CHARS = 40_000
"""How much of an unusable reply is kept for the model to read."""


@dataclass(frozen=True, slots=True)
class UseTool:
    """An accepted tool call."""

    spec: ToolSpec
    params: BaseModel
    raw_params: dict[str, object]
    code: str | None
    notes: str


@dataclass(frozen=True, slots=True)
class GiveAnswer:
    """An accepted end of the turn. `shown` is the part of `text` that clients saw; `cut_reason` says why it stops
    early."""

    text: str
    shown: str
    followups: tuple[str, ...] = ()
    used_sids: tuple[int, ...] = ()
    summary: str | None = None
    notes: str = ""
    cut_reason: CutReason | None = None


CUT_WORDS: Final[Mapping[CutReason, str]] = {
    "length": "it reached the token limit of one reply",
    "size_limit": "it reached the size limit of one reply",
    "time_limit": "the time limit of the turn was reached",
    "content_filter": "the provider's content filter ended it",
    "refusal": "the model declined to continue",
    "incomplete": "the reply ended in the middle of the answer",
    "provider_error": "the model stopped answering",
    "server_error": "the server failed",
}
"""Why an answer is incomplete."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A reply or an action that can't be used, and the sentences that explain it to the model. `missing_tool` and
    `refused_tool` are as in NoticeBody."""

    code: str
    sentences: str
    missing_tool: str | None = None
    refused_tool: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The accepted items of a reply, in the order in which they were written. At least one item, at most one answer.

    `refused` are the actions that are not run; `remarks` are the other problems.
    """

    items: tuple[UseTool | GiveAnswer, ...]
    refused: tuple[Repair, ...] = ()
    remarks: Repair | None = None

    @property
    def calls(self) -> tuple[UseTool, ...]:
        return tuple(item for item in self.items if isinstance(item, UseTool))

    @property
    def answer(self) -> GiveAnswer | None:
        """The answer, which waits until the calls have run."""
        return next((item for item in self.items if isinstance(item, GiveAnswer)), None)


Verdict = Work | Repair


def check_decision(decision: Decision, shown_answer: str, catalog: ToolRegistry) -> Verdict:
    """Decide what to do with a reply. An answer that the person has seen is kept, even if the rest of the reply is
    wrong."""
    # Whitespace does not count as seen.
    shown_answer = "" if is_blank(shown_answer) else shown_answer
    if problems := decision.fatal_problems:
        return Work((keep_shown(decision, shown_answer),)) if shown_answer else _combine(problems)
    checked = [_check_action(decision, index, shown_answer, catalog) for index in range(len(decision.actions))]
    items = [item for item in checked if not isinstance(item, Repair)]
    refused = [item for item in checked if isinstance(item, Repair)]
    if shown_answer and not any(isinstance(item, GiveAnswer) for item in items):
        items.append(keep_shown(decision, shown_answer))
    if not items:
        return refused[0] if refused else Repair("no_action", "The reply neither calls a tool nor gives an answer.")
    siblings = [_combine([problem]) for problem in _remarks(decision, of="actions")]
    siblings += [replace(repair, sentences=f"An action was not run. {repair.sentences}") for repair in refused]
    remarks = _remarks(decision, of="reply")
    return Work(tuple(items), tuple(siblings), _combine(remarks) if remarks else None)


def _check_action(decision: Decision, index: int, shown: str, catalog: ToolRegistry) -> UseTool | GiveAnswer | Repair:
    action = decision.actions[index]
    if action.tool_call is None:
        return _accept_answer(decision, action, shown)
    code = next((program.text for program in decision.programs if program.for_action in (index, None)), None)
    return _check_call(action.notes, action.tool_call, code, catalog)


def _combine(problems: Sequence[Problem]) -> Repair:
    sentences = " ".join(problem.sentence for problem in problems[:MAX_SENTENCES])
    missing = next((problem.missing_tool for problem in problems if problem.missing_tool), None)
    return Repair(problems[0].kind, sentences, missing)


def _remarks(decision: Decision, *, of: Literal["actions", "reply"]) -> tuple[Problem, ...]:
    """Problems that leave the reply usable: those of refused actions, or of the reply as a whole."""
    return tuple(problem for problem in decision.problems if (problem.action_instance is None) == (of == "reply"))


def keep_shown(decision: Decision, shown: str) -> GiveAnswer:
    """The part of the answer that the person has seen."""
    raw = decision.answer.raw if decision.answer else shown
    used_sids = decision.answer.used_sids if decision.answer else ()
    return GiveAnswer(raw, shown, used_sids=used_sids, cut_reason=decision.cut_reason)


def _accept_answer(decision: Decision, action: Action, shown: str) -> GiveAnswer | Repair:
    text = action.final_answer or ""
    if is_blank(text):
        return Repair("missing_field", f"An action `{action.action}` needs a final_answer that is not empty.")
    return GiveAnswer(
        text=text,
        shown=shown or text,
        followups=action.suggested_followups or (),
        used_sids=decision.answer.used_sids if decision.answer else (),
        summary=decision.summary,
        notes=action.notes,
        cut_reason=decision.cut_reason,
    )


def _check_call(notes: str, call: DecidedCall, code: str | None, catalog: ToolRegistry) -> UseTool | Repair:
    tool_id, raw_params = call.tool_id, dict(call.params)
    try:
        spec = catalog.spec(tool_id)
    except Invalid as missing:
        return Repair("bad_tool_call", missing.detail, missing_tool=ascii(tool_id[:MAX_TOOL_CHARS])[1:-1])
    try:
        params = catalog.check_params(tool_id, raw_params)
    except Invalid as refused:
        return Repair("bad_tool_call", refused.detail, refused_tool=tool_id)
    if spec.takes_code and not (code or "").strip():
        return Repair(
            "call_without_code",
            f"{tool_id} needs a program, but the reply does not contain one. Call it again with its program.",
            refused_tool=tool_id,
        )
    recorded = {name: getattr(params, name) for name in spec.recorded_defaults if name not in raw_params}
    return UseTool(spec, params, {**raw_params, **recorded}, code if spec.takes_code else None, notes)


@dataclass(frozen=True, slots=True)
class RoundContext:
    """The round that blocks belong to. `limit` is the number of rounds the turn may have now.

    `now` is the time of writing, ISO 8601; `began` is the start of the round, if it was earlier. `finalize` marks the
    rounds left after a steer, in which work is only finished. `others` of the rounds before it belong to the turn or to
    other steps: the model of a step does not count them.
    """

    turn_id: TurnId
    round: int
    limit: int
    now: str
    finalize: bool = False
    began: str = ""
    others: int = 0

    def at(self, now: str) -> "RoundContext":
        """The same context at a later time, after a model call or a tool."""
        return replace(self, now=now, began=self.began or self.now)

    def draft(
        self, kind: BlockType, ref: str, body: Body, *, ts_first: str | None = None, call_id: CallId | None = None
    ) -> BlockDraft:
        return BlockDraft(self.turn_id, self.round, kind, ref, body, self.now, ts_first, call_id)


def draft_round_start(context: RoundContext) -> BlockDraft:
    """The block that starts the round."""
    ref, body = round_ref(context.turn_id, context.round, "start"), RoundStartBody(limit=context.limit)
    return BlockDraft(context.turn_id, context.round, BlockType.ROUND_START, ref, body, context.began or context.now)


def draft_missing_start(context: RoundContext, progress: TurnProgress) -> list[BlockDraft]:
    """The round's start, unless signals that were folded into it have opened it already."""
    return [] if progress.started_round == context.round else [draft_round_start(context)]


def draft_thinking(context: RoundContext, texts: RoundTexts) -> list[BlockDraft]:
    """One block for each thinking channel, exactly as it was shown."""
    return [
        context.draft(
            BlockType.THINKING,
            round_ref(context.turn_id, context.round, f"thinking.{instance}"),
            ThinkingBody(text=texts.text("thinking", instance), instance=instance),
            ts_first=texts.first_ts("thinking", instance),
        )
        for instance in texts.instances("thinking")
    ]


def draft_work(context: RoundContext, texts: RoundTexts, work: Work, call_ids: Sequence[CallId]) -> list[BlockDraft]:
    """Everything that a reply does, in order, then notices for what is not done. An answer with calls waits for their
    results."""
    drafts: list[BlockDraft] = []
    ids = iter(call_ids)
    for item in work.items:
        ordinal = sum(draft.type is BlockType.NOTES for draft in drafts)
        if isinstance(item, GiveAnswer):
            drafts += draft_pending_answer(context, texts, item, ordinal)
        else:
            drafts += draft_call(context, texts, item, next(ids), ordinal)
    return [*drafts, *draft_notices(context, work)]


def draft_call(
    context: RoundContext, texts: RoundTexts, use: UseTool, call_id: CallId, ordinal: int = 0
) -> list[BlockDraft]:
    """Notes, program and call of one tool use; `ordinal` is the number of earlier notes in the round."""
    drafts = _draft_notes(context, texts, use.notes, call_id=call_id, ordinal=ordinal)
    if use.code is not None:
        ref = round_ref(context.turn_id, context.round, "code")
        drafts.append(context.draft(BlockType.TOOL_CODE, ref, ToolCodeBody(text=use.code), call_id=call_id))
    body = ToolCallBody(tool_id=use.spec.tool_id, params=use.raw_params)
    drafts.append(context.draft(BlockType.TOOL_CALL, call_ref(context.turn_id, call_id), body, call_id=call_id))
    return drafts


def draft_notices(context: RoundContext, work: Work) -> list[BlockDraft]:
    """One notice for each action that is not run; remarks about the reply only if the turn continues and can correct
    them."""
    repairs = [*work.refused, *([work.remarks] if work.remarks and work.answer is None else [])]
    return [draft_notice(context, repair, n) for n, repair in enumerate(repairs, start=1)]


def draft_repair(context: RoundContext, repair: Repair, raw: str) -> list[BlockDraft]:
    """The unusable reply and what is wrong with it."""
    return [
        context.draft(
            BlockType.DECISION_RAW,
            round_ref(context.turn_id, context.round, "raw"),
            RawDecisionBody(text=raw[:MAX_RAW_CHARS], code=repair.code),
        ),
        draft_notice(context, repair),
    ]


def draft_interrupted(context: RoundContext, begun: str) -> BlockDraft:
    """The raw text of what the model was about to do when a signal interrupted it."""
    body = RawDecisionBody(text=begun[:MAX_RAW_CHARS], code=INTERRUPTED)
    return context.draft(BlockType.DECISION_RAW, round_ref(context.turn_id, context.round, "raw.interrupted"), body)


def find_begun_action(raw: str) -> str:
    """The text of an interrupted reply after its thinking; empty if it was still thinking."""
    closer = "</channel:thinking>"
    at = raw.lower().rfind(closer)
    if at < 0 and raw.lstrip().lower().startswith("<channel:thinking"):
        return ""
    return raw[at + len(closer) :].strip() if at >= 0 else raw.strip()


def draft_notice(context: RoundContext, repair: Repair, n: int = 1) -> BlockDraft:
    """`n` counts the notices of the round from 1."""
    ref = round_ref(context.turn_id, context.round, "notice" if n == 1 else f"notice.{n}")
    body = NoticeBody(
        code=repair.code, text=repair.sentences, missing_tool=repair.missing_tool, refused_tool=repair.refused_tool
    )
    return context.draft(BlockType.NOTICE, ref, body)


def draft_codec_switch(context: RoundContext) -> list[BlockDraft]:
    """A notice after which the turn continues with calls in the provider's own form, on any worker."""
    text = (
        "You made a native tool call, so the rest of this turn uses native tool calls. The tools are declared now. A "
        "reply without a call is the final answer."
    )
    notice = NoticeBody(code=CALLS_NATIVELY, text=text)
    return [context.draft(BlockType.NOTICE, round_ref(context.turn_id, context.round, "notice.codec"), notice)]


def draft_answer(context: RoundContext, texts: RoundTexts, answer: GiveAnswer, n: int) -> list[BlockDraft]:
    """Working summary and completion; `n` counts the completions of the turn from 1."""
    drafts = _draft_before_answer(context, texts, answer, 0)
    body = CompletionBody(
        text=answer.text,
        shown=answer.shown if answer.shown != answer.text else None,
        followups=answer.followups,
        sources_used=answer.used_sids,
    )
    drafts.append(
        context.draft(BlockType.COMPLETION, completion_ref(context.turn_id, n), body, ts_first=texts.first_ts("answer"))
    )
    return drafts


def draft_cut_notice(context: RoundContext, reason: CutReason | None) -> list[BlockDraft]:
    """A notice that lets the model continue a cut answer in a later turn; none if the answer is complete."""
    if reason is None:
        return []
    text = (
        f"Your answer above is incomplete: {CUT_WORDS[reason]}. If the user asks you to continue, continue exactly"
        " where it stops, without repeating anything."
    )
    notice = NoticeBody(code=CUT_CODE, text=text)
    return [context.draft(BlockType.NOTICE, round_ref(context.turn_id, context.round, "notice.cut"), notice)]


def draft_pending_answer(
    context: RoundContext, texts: RoundTexts, answer: GiveAnswer, ordinal: int
) -> list[BlockDraft]:
    """An answer given together with calls, as an attempt that a TurnFinisher makes the turn's answer."""
    body = AttemptBody(
        text=answer.text,
        shown=answer.shown if answer.shown != answer.text else None,
        reason=PENDING,
        followups=answer.followups,
        sources_used=answer.used_sids,
        cut_reason=answer.cut_reason,
    )
    ref = round_ref(context.turn_id, context.round, "attempt")
    attempt = context.draft(BlockType.COMPLETION_ATTEMPT, ref, body, ts_first=texts.first_ts("answer"))
    return [*_draft_before_answer(context, texts, answer, ordinal), attempt]


def _draft_before_answer(
    context: RoundContext, texts: RoundTexts, answer: GiveAnswer, ordinal: int
) -> list[BlockDraft]:
    drafts = _draft_notes(context, texts, answer.notes or texts.text("notes", ordinal), ordinal=ordinal)
    if answer.summary:
        ref = working_summary_ref(context.turn_id)
        drafts.append(context.draft(BlockType.WORKING_SUMMARY, ref, SummaryBody(text=answer.summary)))
    return drafts


def draft_attempt(context: RoundContext, texts: RoundTexts, decision: Decision, reason: str) -> list[BlockDraft]:
    """The shown part of an answer that does not become the turn's answer."""
    shown = texts.text("answer")
    if not shown:
        return []
    raw = decision.answer.raw if decision.answer else shown
    body = AttemptBody(text=raw, shown=shown if shown != raw else None, reason=reason)
    ref = round_ref(context.turn_id, context.round, "attempt")
    return [context.draft(BlockType.COMPLETION_ATTEMPT, ref, body, ts_first=texts.first_ts("answer"))]


def draft_plan_marks(context: RoundContext, plan: PlanSnapshot, marks: str, n: int) -> list[BlockDraft]:
    """A plan after step marks in notes, and the marks in readable form; `n` counts the turn's marks from 1."""
    return [
        context.draft(
            BlockType.PLAN_ACK, plan_ack_ref(context.turn_id, n), PlanAckBody(plan_id=plan.plan_id, text=marks)
        ),
        context.draft(BlockType.PLAN, plan_ref(context.turn_id, plan.plan_id), PlanBody(plan=plan)),
    ]


def write_round(drafts: Sequence[BlockDraft], texts: RoundTexts) -> CommitContent:
    """A model call's blocks. If clients were shown texts that differ from the blocks, a rewind corrects them."""
    return CommitContent(drafts=tuple(drafts), rewind=_texts_of(drafts) != texts.raw)


def _texts_of(drafts: Sequence[BlockDraft]) -> dict[tuple[str, int], str]:
    """The texts of one round's blocks that the view of a turn shows, by channel and instance.

    Written texts are included as written: the commit resolves their citations as the stream did.
    """
    texts: dict[tuple[str, int], str] = {}
    notes, calls = count(), count()
    for draft in drafts:
        match draft.body:
            case ThinkingBody(text=text, instance=instance):
                texts["thinking", instance] = text
            case NotesBody(text=text):
                texts["notes", next(notes)] = text
            case CompletionBody() | AttemptBody() as answer:
                texts["answer", answer.instance] = answer.text if answer.shown is None else answer.shown
            case ToolCallBody() as call:
                instance = next(calls)
                if written := build_written_text(draft, call, instance=instance):
                    texts[written.channel, instance] = written.text
            case _:
                """Clients don't see the other blocks as texts."""
    return {key: text for key, text in texts.items() if text}


def _draft_notes(
    context: RoundContext, texts: RoundTexts, notes: str, *, call_id: CallId | None = None, ordinal: int = 0
) -> list[BlockDraft]:
    if not notes:
        return []
    ref = notes_ref(context.turn_id, call_id) if call_id else round_ref(context.turn_id, context.round, "notes")
    first_ts = texts.first_ts("notes", ordinal)
    return [context.draft(BlockType.NOTES, ref, NotesBody(text=notes), ts_first=first_ts, call_id=call_id)]
