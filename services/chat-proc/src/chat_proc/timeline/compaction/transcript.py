"""The range that is to be summarized, as the summarizing model reads it: one labelled piece for each block."""

import json
from collections.abc import Callable, Iterable, Sequence

from chat_proc.timeline.compaction.sections import TokensOf
from everturn.model import block_bodies as bodies
from everturn.model.blocks import Block
from everturn.timeline.inert import escape_field, escape_line, make_inert
from everturn.timeline.rendering.block_text import render_plan, shorten
from everturn.timeline.rendering.preview import drop_base64, try_shape

MAX_RESULT_TOKENS = 3_000
"""Of a result that is told whole; a longer one is told by its shape and a sample. As in the reference system."""
SAMPLE_CHARS = 8_000
_CAPS = (SAMPLE_CHARS, 2_000, 500, 160)
"""Characters of one piece, tried one after another until the transcript fits."""
MAX_THINKING_CHARS = 500
Hidden = Callable[[Block], str | None]
"""What a hide has put in the place of a block; None for one that is not hidden."""


def render_transcript(blocks: Sequence[Block], hidden: Hidden, max_tokens: int, tokens_of: TokensOf) -> str:
    """All blocks that say something, oldest first, in at most `max_tokens`; the oldest ones give way last of all."""
    pieces: list[str] = []
    for cap in _CAPS:
        pieces = [piece for block in blocks if (piece := _render(block, hidden(block), cap, tokens_of))]
        if tokens_of("\n".join(pieces)) <= max_tokens:
            return "\n".join(pieces)
    while pieces and tokens_of("\n".join(pieces)) > max_tokens:
        pieces = pieces[(len(pieces) + 9) // 10 :]
    return "\n".join(pieces)


def render_working_summaries(blocks: Iterable[Block], max_chars: int = SAMPLE_CHARS) -> str:
    """What the model noted at the end of the turns of the range; the newest of a turn counts."""
    newest = {block.turn_id: block for block in blocks if isinstance(block.body, bodies.SummaryBody)}
    texts = [f"{escape_line(block.ref)}\n{_text_of(block)}" for block in newest.values()]
    return make_inert("\n\n".join(texts)[-max_chars:])


def _render(block: Block, replacement: str | None, cap: int, tokens_of: TokensOf) -> str:
    label = _LABELS.get(type(block.body))
    if label is None or getattr(block.body, "parent", None) is not None:
        return ""
    head = f"{label} [{escape_field(block.ref)}]"
    if replacement is not None:
        return f"{head} (hidden): {make_inert(_cut(replacement, cap))}"
    text = _cut_result(block.body, cap, tokens_of) if isinstance(block.body, bodies.ToolResultBody) else _text_of(block)
    limit = min(cap, MAX_THINKING_CHARS) if isinstance(block.body, bodies.ThinkingBody) else cap
    told = make_inert(_cut(drop_base64(text), limit))
    return f"{head}{_detail(block.body)}: {told}".rstrip()


_LABELS: dict[type[bodies.Body], str] = {
    bodies.TurnHeaderBody: "TURN",
    bodies.PromptBody: "USER",
    bodies.AttachmentBody: "ATTACHMENT",
    bodies.AttachmentTextBody: "ATTACHMENT TEXT",
    bodies.SignalBody: "USER MEANWHILE",
    bodies.EventBody: "EVENT",
    bodies.ThinkingBody: "THINKING",
    bodies.NotesBody: "NOTES",
    bodies.AnchorBody: "ANCHOR",
    bodies.NoticeBody: "NOTICE",
    bodies.ToolCallBody: "CALL",
    bodies.ToolCodeBody: "PROGRAM",
    bodies.ToolResultBody: "RESULT",
    bodies.PlanBody: "PLAN",
    bodies.CompletionBody: "ASSISTANT",
    bodies.AttemptBody: "ASSISTANT ATTEMPT",
    bodies.DeferralBody: "NOT ENDED",
    bodies.FeedbackBody: "FEEDBACK",
}
"""Working summaries are told apart; the blocks that are missing here tell nothing that the others don't."""


def _detail(body: bodies.Body) -> str:
    match body:
        case bodies.ToolCallBody(tool_id=tool_id):
            return f" {tool_id}"
        case bodies.ToolResultBody(status=status, artifacts=files):
            return f" {status}" + "".join(f" {escape_line(artifact.ref)}" for artifact in files)
        case bodies.EventBody(kind=kind):
            return f" {escape_line(kind)}"
        case bodies.SignalBody(attachments=files):
            return "".join(f" {escape_line(artifact.ref)}" for artifact in files)
        case bodies.PlanBody(plan=plan):
            return f" {plan.status.value}"
        case bodies.NoticeBody(code=code):
            return f" {code}"
        case bodies.AttemptBody(reason=reason) | bodies.DeferralBody(reason=reason):
            return f" {escape_line(reason)}"
        case _:
            return ""


def _text_of(block: Block) -> str:
    match block.body:
        case bodies.AttachmentBody(artifact=artifact):
            return f"{escape_line(artifact.filename)}, {artifact.mime}, {artifact.size} bytes"
        case bodies.ToolCallBody(params=params):
            return json.dumps(shorten(params), sort_keys=True, ensure_ascii=False)
        case bodies.PlanBody(plan=plan):
            return render_plan(plan)
        case bodies.TurnHeaderBody():
            return block.ts
        case _:
            text = getattr(block.body, "text", "")
            return text if isinstance(text, str) else ""


def _cut_result(body: bodies.ToolResultBody, cap: int, tokens_of: TokensOf) -> str:
    if len(body.text) <= cap and tokens_of(body.text) <= MAX_RESULT_TOKENS:
        return body.text
    shape = try_shape(body.text)
    told = f"(shape) {shape}\n" if shape else ""
    return f"({len(body.text)} characters) {told}(sample) {body.text}"


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else f"{text[:cap]}… ({len(text)} characters)"
