"""The text of each block as the model reads it: a header line `[<type> <ref>]`, then what the block says."""

import json
from collections.abc import Iterable
from typing import cast

from everturn.model import block_bodies as bodies
from everturn.model.artifacts import Artifact
from everturn.model.blocks import Block, BlockType
from everturn.model.plans import PlanSnapshot, render_step
from everturn.timeline.inert import escape_line, make_inert

MAX_PROMPT_CHARS = 40_000
MAX_TEXT_CHARS = 24_000
"""Of a tool result and of every other text that is not a prompt."""
MAX_PARAM_CHARS = 2_000
"""Of one string in the parameters of a call."""


def render_block(block: Block) -> str:
    """Header, text and an empty line. Depends on nothing but the block, so it can be kept for ever."""
    lines = [line for line in _lines(block) if line]
    return "\n".join(lines) + "\n\n"


def render_artifact(artifact: Artifact) -> str:
    """`- fi:... (image/png, 1234 bytes)`."""
    return f"- {escape_line(artifact.ref)} ({artifact.mime}, {artifact.size} bytes)"


def render_plan(plan: PlanSnapshot) -> str:
    """`plan_id=... (current)` and its steps."""
    head = f"plan_id={plan.plan_id}" + (" (current)" if plan.current else "")
    return "\n".join((head, *(f"  {render_step(step)}" for step in plan.steps)))


def preview(text: str, cap: int, ref: str) -> str:
    """The beginning of a text, made inert, and where to read the rest."""
    if len(text) <= cap:
        return make_inert(text)
    item = json.dumps({"path": ref, "offset": cap}, ensure_ascii=False)
    return f"{make_inert(text[:cap])}\n({cap} of {len(text)} characters shown; more: react.read items=[{item}])"


def block_source(block: Block) -> str:
    """The whole text behind a block, verbatim; an offset into what is shown of it is an offset into this."""
    match block.body:
        case bodies.ToolCallBody() as body:
            return f"{body.tool_id}\n{_params(body.params)}"
        case bodies.ToolResultBody() as body:
            return "\n".join((body.text, *map(render_artifact, body.artifacts)))
        case bodies.PlanBody(plan=plan):
            return render_plan(plan)
        case bodies.PlanHistoryBody(plans=plans):
            return "\n".join(map(render_plan, plans))
        case bodies.TitleBody(title=title):
            return title
        case (
            bodies.PromptBody(text=text)
            | bodies.AttachmentTextBody(text=text)
            | bodies.SignalBody(text=text)
            | bodies.ThinkingBody(text=text)
            | bodies.NotesBody(text=text)
            | bodies.NoticeBody(text=text)
            | bodies.RawDecisionBody(text=text)
            | bodies.ToolCodeBody(text=text)
            | bodies.PlanAckBody(text=text)
            | bodies.CompletionBody(text=text)
            | bodies.AttemptBody(text=text)
            | bodies.SummaryBody(text=text)
            | bodies.EventBody(text=text)
            | bodies.AnchorBody(text=text)
            | bodies.DeferralBody(text=text)
            | bodies.RangeSummaryBody(text=text)
            | bodies.SystemMessageBody(text=text)
            | bodies.FeedbackBody(text=text)
        ):
            return text
        case _:
            return block.body_json


def _lines(block: Block) -> Iterable[str]:
    match block.body:
        case bodies.TurnHeaderBody():
            return (f"[TURN {block.turn_id}]", f"started {block.ts}")
        case bodies.PromptBody(text=text):
            return (_header(block), preview(text, MAX_PROMPT_CHARS, block.ref))
        case bodies.AttachmentBody(artifact=artifact):
            return (_attachment(artifact),)
        case bodies.AttachmentTextBody() as body:
            return (_header(block), make_inert(body.text), _attachment_rest(body))
        case bodies.SignalBody() as body:
            text = preview(body.text, MAX_PROMPT_CHARS, block.ref) or _silent_signal(block)
            return (_header(block), text, *map(_attachment, body.attachments))
        case bodies.ToolCallBody() as body:
            return (f"{_header(block)} {body.tool_id}", make_inert(_params(shorten(body.params))))
        case bodies.ToolResultBody() as body:
            text = preview(body.text, MAX_TEXT_CHARS, block.ref)
            return (f"{_header(block)} {body.status}", text, *map(render_artifact, body.artifacts))
        case bodies.PlanBody(plan=plan):
            return (f"{_header(block)} {plan.status.value}", make_inert(render_plan(plan)))
        case bodies.FeedbackBody() as body:
            reaction = body.reaction or "no reaction"
            return (
                f"{_header(block)} {body.turn_id} {reaction} ({body.origin})",
                preview(body.text, MAX_TEXT_CHARS, block.ref),
            )
        case bodies.NoticeBody(code=code, text=text) | bodies.RawDecisionBody(code=code, text=text):
            return (f"{_header(block)} {code}", preview(text, MAX_TEXT_CHARS, block.ref))
        case bodies.AttemptBody() as body:
            return (f"{_header(block)} {escape_line(body.reason)}", preview(body.text, MAX_TEXT_CHARS, block.ref))
        case _:
            return (_header(block), preview(block_source(block), MAX_TEXT_CHARS, block.ref))


def _header(block: Block) -> str:
    return f"[{block.type.value} {escape_line(block.ref)}]"


def _attachment(artifact: Artifact) -> str:
    described = f"mime={artifact.mime} size={artifact.size} path={escape_line(artifact.path)}"
    return f"[{BlockType.ATTACHMENT_META.value} {escape_line(artifact.ref)} {described}]"


def _attachment_rest(body: bodies.AttachmentTextBody) -> str:
    if body.total_chars == len(body.text):
        return ""
    total = "more" if body.total_chars is None else str(body.total_chars)
    return f"(the first {len(body.text)} of {total} characters)"


def _silent_signal(block: Block) -> str:
    return "(no text: stop now with what there is)" if block.type is BlockType.USER_STEER else "(no text)"


def _params(params: object) -> str:
    return json.dumps(params, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def shorten(value: object) -> object:
    """JSON values with long strings cut."""
    match value:
        case str() if len(value) > MAX_PARAM_CHARS:
            return f"{value[:MAX_PARAM_CHARS]}... ({MAX_PARAM_CHARS} of {len(value)} characters shown)"
        case dict():
            return {key: shorten(item) for key, item in cast("dict[str, object]", value).items()}
        case list():
            return [shorten(item) for item in cast("list[object]", value)]
        case _:
            return value
