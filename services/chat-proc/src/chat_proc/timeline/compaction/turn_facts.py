"""Facts about a turn that need no model: how it ended, which calls it made; and the transcript that a model
summarizes."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from chat_proc.timeline.artifacts import block_artifacts
from chat_proc.timeline.compaction.sections import Section, Sections, TokensOf, cut_line, find_refs, merge_sections
from chat_proc.timeline.present import latest_plans
from everturn.core.refs import turn_index_ref
from everturn.timeline.blocks import (
    AnchorBody,
    AttachmentBody,
    AttachmentTextBody,
    AttemptBody,
    Block,
    Body,
    CompletionBody,
    DeferralBody,
    EventBody,
    ExitBody,
    FeedbackBody,
    NotesBody,
    NoticeBody,
    PlanBody,
    PromptBody,
    SignalBody,
    SummaryBody,
    ThinkingBody,
    ToolCallBody,
    ToolCodeBody,
    ToolResultBody,
    TurnHeaderBody,
)
from everturn.timeline.inert import escape_field, escape_line, make_inert
from everturn.timeline.plans import PlanStatus, StepStatus, render_step
from everturn.timeline.rendering import drop_base64, render_plan, shorten, try_shape

MAX_RESULT_TOKENS = 3_000
"""Limit of a result that is included whole; a longer one is included as its shape and a sample. As in the reference
system."""
SAMPLE_CHARS = 8_000
_CAPS = (SAMPLE_CHARS, 2_000, 500, 160)
"""Characters of one piece, tried in order until the transcript fits."""
MAX_THINKING_CHARS = 500
Hidden = Callable[[Block], str | None]
"""The text with which a hide replaced a block; None if it is not hidden."""

_LABELS: dict[type[Body], str] = {
    TurnHeaderBody: "TURN",
    PromptBody: "USER",
    AttachmentBody: "ATTACHMENT",
    AttachmentTextBody: "ATTACHMENT TEXT",
    SignalBody: "USER MEANWHILE",
    EventBody: "EVENT",
    ThinkingBody: "THINKING",
    NotesBody: "NOTES",
    AnchorBody: "ANCHOR",
    NoticeBody: "NOTICE",
    ToolCallBody: "CALL",
    ToolCodeBody: "PROGRAM",
    ToolResultBody: "RESULT",
    PlanBody: "PLAN",
    CompletionBody: "ASSISTANT",
    AttemptBody: "ASSISTANT ATTEMPT",
    DeferralBody: "NOT ENDED",
    FeedbackBody: "FEEDBACK",
}
"""Working summaries are rendered separately; blocks missing here add nothing to the others."""

MAX_WORDS = 200
MAX_PREFERENCES = 12
MAX_PREFERENCE_CHARS = 220
MAX_FILES = 12
MAX_PARAMS_CHARS = 120
_FIELD = re.compile(
    r"[#*\-\s]*(goal|outcome|key facts|refs|retrieval anchors)\s*+\**+\s*+:\s*+\**+\s*+(.*)", re.IGNORECASE
)
"""Possessive quantifiers, because a run of blanks would otherwise backtrack in every split."""
_FIELD_OF = {
    "key facts": Section.FACTS,
    "refs": Section.REFS,
    "retrieval anchors": Section.ANCHORS,
}
_TAGGED = re.compile(r"[-*\s]*\[([A-Z])\]\s*(.+)")
_SECTION_OF_TAG = {"P": Section.PREFERENCES, "D": Section.DECISIONS, "S": Section.FACTS, "K": Section.FACTS}


def render_transcript(blocks: Sequence[Block], hidden: Hidden, max_tokens: int, tokens_of: TokensOf) -> str:
    """All blocks with content, oldest first, in at most `max_tokens`; as a last resort, the oldest ones are dropped."""
    pieces: list[str] = []
    for cap in _CAPS:
        pieces = [piece for block in blocks if (piece := _render(block, hidden(block), cap, tokens_of))]
        if tokens_of("\n".join(pieces)) <= max_tokens:
            return "\n".join(pieces)
    while pieces and tokens_of("\n".join(pieces)) > max_tokens:
        pieces = pieces[(len(pieces) + 9) // 10 :]
    return "\n".join(pieces)


def render_working_summaries(blocks: Iterable[Block], max_chars: int = SAMPLE_CHARS) -> str:
    """The working summaries of the turns in the range; the newest of each turn counts."""
    newest = {block.turn_id: block for block in blocks if isinstance(block.body, SummaryBody)}
    texts = [f"{escape_line(block.ref)}\n{_text_of(block)}" for block in newest.values()]
    return make_inert("\n\n".join(texts)[-max_chars:])


def _render(block: Block, replacement: str | None, cap: int, tokens_of: TokensOf) -> str:
    label = _LABELS.get(type(block.body))
    is_reasoning = isinstance(block.body, ThinkingBody) and block.body.is_reasoning
    if label is None or is_reasoning or getattr(block.body, "parent", None) is not None:
        return ""
    head = f"{label} [{escape_field(block.ref)}]"
    if replacement is not None:
        return f"{head} (hidden): {make_inert(_cut(replacement, cap))}"
    text = _cut_result(block.body, cap, tokens_of) if isinstance(block.body, ToolResultBody) else _text_of(block)
    limit = min(cap, MAX_THINKING_CHARS) if isinstance(block.body, ThinkingBody) else cap
    text_shown = make_inert(_cut(drop_base64(text), limit))
    return f"{head}{_detail(block.body)}: {text_shown}".rstrip()


def _detail(body: Body) -> str:
    match body:
        case ToolCallBody(tool_id=tool_id):
            return f" {tool_id}"
        case ToolResultBody(status=status, artifacts=files):
            return f" {status}" + "".join(f" {escape_line(artifact.ref)}" for artifact in files)
        case EventBody(kind=kind):
            return f" {escape_line(kind)}"
        case SignalBody(attachments=files):
            return "".join(f" {escape_line(artifact.ref)}" for artifact in files)
        case PlanBody(plan=plan):
            return f" {plan.status.value}"
        case NoticeBody(code=code):
            return f" {code}"
        case AttemptBody(reason=reason) | DeferralBody(reason=reason):
            return f" {escape_line(reason)}"
        case _:
            return ""


def _text_of(block: Block) -> str:
    match block.body:
        case AttachmentBody(artifact=artifact):
            return f"{escape_line(artifact.filename)}, {artifact.mime}, {artifact.size} bytes"
        case ToolCallBody(params=params):
            return json.dumps(shorten(params), sort_keys=True, ensure_ascii=False)
        case PlanBody(plan=plan):
            return render_plan(plan)
        case TurnHeaderBody():
            return block.ts
        case _:
            text = getattr(block.body, "text", "")
            return text if isinstance(text, str) else ""


def _cut_result(body: ToolResultBody, cap: int, tokens_of: TokensOf) -> str:
    if len(body.text) <= cap and tokens_of(body.text) <= MAX_RESULT_TOKENS:
        return body.text
    shape = try_shape(body.text)
    shape_line = f"(shape) {shape}\n" if shape else ""
    return f"({len(body.text)} characters) {shape_line}(sample) {body.text}"


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else f"{text[:cap]}… ({len(text)} characters)"


def summarize_turns(blocks: Sequence[Block]) -> Sections:
    """Sections about ended turns: how each ended, with a ref for more, and what was noted in them."""
    sections: dict[Section, list[str]] = {}
    for _, turn in groupby(blocks, key=lambda block: block.turn_id):
        _add_turn(list(turn), sections)
    _add_files(blocks, sections)
    _add_steps(blocks, sections)
    return merge_sections(sections, fold_anchors(blocks))


def summarize_rounds(blocks: Sequence[Block], hidden: Hidden) -> Sections:
    """Sections about rounds of the current turn: the request, what was done, and the ledger of calls."""
    sections: dict[Section, list[str]] = {}
    for block in blocks:
        match block.body:
            case NotesBody(text=text):
                sections.setdefault(Section.DONE, []).append(cut_line(text, MAX_WORDS))
            case PromptBody(text=text) | SignalBody(text=text) if text.strip():
                sections.setdefault(Section.ACTIVE, []).append(f"{cut_line(text, MAX_WORDS)} ({block.ref})")
            case _:
                """Listed in the ledger of calls, or left out."""
    sections[Section.CALLS] = list_calls(blocks, hidden)
    _add_files(blocks, sections)
    _add_steps(blocks, sections)
    return merge_sections(sections, fold_anchors(blocks))


def list_calls(blocks: Sequence[Block], hidden: Hidden) -> list[str]:
    """One line for each call: tool, parameters, status, size, shape, refs of result, files and sources."""
    results = {block.call_id: block for block in blocks if isinstance(block.body, ToolResultBody)}
    return [
        _call_line(block, block.body, results.get(block.call_id), hidden)
        for block in blocks
        if isinstance(block.body, ToolCallBody) and block.body.parent is None
    ]


def fold_anchors(blocks: Iterable[Block]) -> Sections:
    """The lines of anchors that are preferences, decisions or facts; only the newest twelve preferences."""
    found: dict[Section, list[str]] = {}
    for block in blocks:
        if isinstance(block.body, AnchorBody):
            for section, line in _tagged_lines(block.body):
                found.setdefault(section, []).append(cut_line(line, MAX_PREFERENCE_CHARS))
    unique = merge_sections({}, found)
    newest = {Section.PREFERENCES: unique.get(Section.PREFERENCES, ())[-MAX_PREFERENCES:]}
    return {section: lines for section, lines in {**unique, **newest}.items() if lines}


def _tagged_lines(body: AnchorBody) -> Iterable[tuple[Section, str]]:
    for line in body.text.splitlines():
        match = _TAGGED.match(line)
        tags, text = ([match[1]], match[2]) if match else (list(body.tags), line.strip())
        section = next((_SECTION_OF_TAG[tag] for tag in tags if tag in _SECTION_OF_TAG), None)
        if section is not None and text:
            yield section, text


def _add_turn(turn: Sequence[Block], sections: dict[Section, list[str]]) -> None:
    asked, outcome, answered = "", "", False
    source = turn_index_ref(turn[0].turn_id)
    end: ExitBody | None = None
    for block in turn:
        match block.body:
            case PromptBody(text=text):
                asked = cut_line(text, MAX_WORDS)
            case CompletionBody(text=text):
                answered, outcome, source = True, text, block.ref
            case ExitBody() as body:
                end = body
            case _:
                """Does not describe the outcome of the turn."""
    summary = next((block for block in reversed(turn) if isinstance(block.body, SummaryBody)), None)
    if summary is not None and isinstance(summary.body, SummaryBody):
        outcome, source = _read_summary(summary.body.text, sections) or outcome, summary.ref
    line = f"{asked} -> {cut_line(outcome, MAX_WORDS) or _end_words(end)} ({source})"
    sections.setdefault(Section.DONE if answered else Section.OPEN, []).append(line)
    sections[Section.ACTIVE] = [f"The last of these turns asked: {asked}"]


def _end_words(end: ExitBody | None) -> str:
    if end is None:
        return "it did not end"
    return end.error.title if end.error else f"ended as {end.outcome.value if end.outcome else 'unknown'}"


def _read_summary(text: str, sections: dict[Section, list[str]]) -> str:
    """Add the lines of a working summary to their sections; returns the outcome."""
    outcome: list[str] = []
    present = ""
    for line in text.splitlines():
        match = _FIELD.fullmatch(line.strip())
        present, words = (match[1].casefold(), match[2]) if match else (present, line.strip("-* \t"))
        if not words:
            continue
        if present in _FIELD_OF:
            sections.setdefault(_FIELD_OF[present], []).append(words)
        elif present in ("outcome", ""):
            outcome.append(words)
    return " ".join(outcome).strip()


def _add_files(blocks: Sequence[Block], sections: dict[Section, list[str]]) -> None:
    refs = dict.fromkeys(artifact.ref for block in blocks for artifact in block_artifacts(block))
    sections.setdefault(Section.REFS, []).extend(list(refs)[-MAX_FILES:])


def _add_steps(blocks: Sequence[Block], sections: dict[Section, list[str]]) -> None:
    for plan in latest_plans(blocks):
        if plan.status is not PlanStatus.OPEN:
            continue
        waiting = [step for step in plan.steps if step.status in (StepStatus.PENDING, StepStatus.IN_PROGRESS)]
        section = Section.NEXT if plan.current else Section.OPEN
        sections.setdefault(section, []).extend(f"{plan.plan_id}: {render_step(step)}" for step in waiting[:1])


def _call_line(block: Block, body: ToolCallBody, result: Block | None, hidden: Hidden) -> str:
    params = cut_line(", ".join(f"{key}={value}" for key, value in sorted(body.params.items())), MAX_PARAMS_CHARS)
    head = f"{body.tool_id}({params}) {block.ref}"
    if result is None or not isinstance(result.body, ToolResultBody):
        return f"{head} -> no result"
    replacement = hidden(result)
    what = f"hidden: {cut_line(replacement, MAX_WORDS)}" if replacement is not None else _describe(result.body)
    refs = [artifact.ref for artifact in result.body.artifacts]
    refs += [ref for ref in dict.fromkeys(find_refs(result.body.text[:4_000])) if ref.startswith("so:")]
    return " ".join((f"{head} -> {result.body.status}, {what} {result.ref}", *refs[:MAX_FILES]))


def _describe(body: ToolResultBody) -> str:
    shape = try_shape(body.text)
    short = cut_line(shape.partition("\n")[0], 60) if shape else cut_line(body.text, 80)
    return f"{len(body.text)} characters: {short}"
