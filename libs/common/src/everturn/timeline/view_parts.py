"""The parts of a turn as a client sees them, made from stored values; views and events share them, so both agree."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, cast
from urllib.parse import quote

from everturn.model.artifacts import Artifact
from everturn.model.block_bodies import (
    ApprovalOutcomeBody,
    ApprovalRequestBody,
    EventBody,
    SignalBody,
    ToolCallBody,
    ToolResultBody,
)
from everturn.model.blocks import Block, BlockType
from everturn.model.feedback import Feedback
from everturn.model.llm.sources import Citation
from everturn.model.signals import Signal, SignalState
from everturn.wire.times import iso
from everturn.wire.views import (
    ApprovalView,
    CitationView,
    EventView,
    FeedbackView,
    FileView,
    SignalView,
    StepView,
    TextView,
)

WRITE_TOOL = "react.write"
SHOWN_CHANNELS = ("canvas", "timeline_text")
PREVIEW_CHARS = 400
CODE_CHARS = 4_000
"""Of a program, in views of turns and in events. Most programs are shorter."""
PARAM_CHARS = 500
PARAM_ITEMS = 50
PARAM_DEPTH = 6
_LEFT_OUT = frozenset({"content", "code"})
_CHANNEL_RANK = {"thinking": 0, "notes": 1, "timeline_text": 2, "canvas": 2, "answer": 4}
_OTHER_RANK = 3

TextFormat = Literal["markdown", "text", "html", "json", "code"]
_FORMATS: dict[str, TextFormat] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
}


def build_file_view(artifact: Artifact, *, tenant: str, project: str) -> FileView:
    """A stored file with the path on the ingress where its content is."""
    return FileView(
        artifact_id=artifact.id,
        ref=artifact.ref,
        rn=artifact.rn,
        filename=artifact.filename,
        mime=artifact.mime,
        size=artifact.size,
        visibility=artifact.visibility,
        url=f"/files/{quote(tenant, safe='')}/{quote(project, safe='')}/{artifact.id}",
        verdict=artifact.verdict,
    )


def build_started_step(block: Block, call: ToolCallBody, code: str | None = None) -> StepView:
    """The step of a `react.tool.call` block with the `code` that it runs. Its key is the call id.

    Long programs and parameters are cut.
    """
    name = call.params.get("prog_name")
    return StepView(
        step=block.call_id or block.ref,
        status="started",
        title=name if isinstance(name, str) and name else call.tool_id,
        round=block.round,
        tool_id=call.tool_id,
        call_id=block.call_id,
        params=bound_params(call.params),
        code=None if code is None else code[:CODE_CHARS],
        code_chars=None if code is None else len(code),
    )


def build_ended_step(started: StepView, result: ToolResultBody) -> StepView:
    """The same step with what the call gave. `error` names the kind of failure: error, ambiguous or cancelled."""
    return started.model_copy(
        update={
            "status": "completed" if result.status == "ok" else "error",
            "result_preview": result.text[:PREVIEW_CHARS],
            "duration_ms": result.duration_ms,
            "error": None if result.status == "ok" else result.status,
        }
    )


def build_written_text(block: Block, call: ToolCallBody, *, instance: int) -> TextView | None:
    """What a `react.write` call shows to the person; None for other calls and for internal writing."""
    written = find_written_content(call)
    if written is None:
        return None
    return TextView(
        round=block.round,
        channel=written.channel,
        instance=instance,
        marker=written.channel,
        format=written.format,
        text=written.text if call.shown is None else call.shown,
        artifact=written.path,
    )


@dataclass(frozen=True, slots=True)
class WrittenContent:
    """A text that a call writes where the person sees it."""

    channel: str
    path: str | None
    format: TextFormat
    text: str


def find_written_content(call: ToolCallBody) -> WrittenContent | None:
    """What a `react.write` call writes for the person, as the model wrote it."""
    channel, path, content = (call.params.get(key) for key in ("channel", "path", "content"))
    if call.tool_id != WRITE_TOOL or channel not in SHOWN_CHANNELS or not isinstance(content, str):
        return None
    where = path if isinstance(path, str) else None
    return WrittenContent(str(channel), where, format_of_path(where or ""), content)


def build_signal_view(signal: Signal, *, tenant: str, project: str) -> SignalView:
    """A signal row as its receipt."""
    return SignalView(
        signal_id=signal.id,
        kind=signal.kind.value,
        state="queued" if signal.turn_id is None and signal.state is SignalState.ACCEPTED else signal.state.value,
        text=signal.text,
        attachments=tuple(build_file_view(item, tenant=tenant, project=project) for item in signal.attachments),
        round=signal.round,
        promoted_to=signal.promoted_to,
        event=EventView(kind=signal.event.kind, reactive=signal.event.reactive) if signal.event else None,
        approval_id=signal.approval_id,
    )


def build_asked_approval(block: Block, body: ApprovalRequestBody) -> ApprovalView:
    """The question of an `approval.request` block."""
    return ApprovalView(
        approval_id=body.approval_id,
        call_id=block.call_id or "",
        tool_id=body.tool_id,
        params=body.params,
        cut=body.cut,
        state="pending",
        round=block.round,
        expires_at=body.expires_at,
        explanation=body.explanation,
    )


def build_settled_approval(asked: ApprovalView, body: ApprovalOutcomeBody) -> ApprovalView:
    """The same question with what became of it."""
    return asked.model_copy(update={"state": body.state, "reason": body.reason})


def try_build_answer_signal(block: Block, body: ApprovalOutcomeBody) -> SignalView | None:
    """The receipt of a person's answer, which is applied where its outcome stands; None when nobody answered."""
    if body.signal_id is None:
        return None
    return SignalView(
        signal_id=body.signal_id,
        kind="approve" if body.state == "approved" else "deny",
        state="applied",
        text=body.reason,
        round=block.round,
        approval_id=body.approval_id,
    )


def withdraw_pending(approvals: Iterable[ApprovalView]) -> tuple[ApprovalView, ...]:
    """The questions of a turn that has ended: nobody is asked any more."""
    return tuple(
        each.model_copy(update={"state": "withdrawn"}) if each.state == "pending" else each for each in approvals
    )


def build_folded_signal(block: Block, body: SignalBody | EventBody, *, tenant: str, project: str) -> SignalView:
    """The receipt of a signal that a `user.followup`, `user.steer` or `event.external` block tells of."""
    is_event = isinstance(body, EventBody)
    spoken = "steer" if block.type is BlockType.USER_STEER else "followup"
    return SignalView(
        signal_id=body.signal_id,
        kind="event" if is_event else spoken,
        state="applied",
        text=body.text,
        attachments=tuple(build_file_view(item, tenant=tenant, project=project) for item in body.attachments),
        round=block.round,
        event=EventView(kind=body.kind, reactive=body.reactive) if is_event else None,
    )


def build_feedback_view(feedback: Feedback) -> FeedbackView:
    """A judgement as a client sees it."""
    return FeedbackView(
        origin=feedback.origin,
        reaction=feedback.reaction.value if feedback.reaction else None,
        text=feedback.text,
        ts=iso(feedback.ts),
        confidence=feedback.confidence,
    )


def build_citation_view(citation: Citation) -> CitationView:
    """A cited source."""
    return CitationView.model_validate(citation.model_dump())


def text_order(text: TextView) -> tuple[int, int, int, str]:
    """Where a text stands in its turn: by round, then thinking, notes, written, answer, then by instance."""
    return (text.round, _CHANNEL_RANK.get(text.channel, _OTHER_RANK), text.instance, text.channel)


def format_of_path(path: str) -> TextFormat:
    """How the content of a written file is shown."""
    return _FORMATS.get(PurePosixPath(path.lower()).suffix, "text")


def bound_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters small enough for an event: `content` and `code` left out, strings, lists and depth cut."""
    return {key: _bound(value, 1) for key, value in list(params.items())[:PARAM_ITEMS] if key not in _LEFT_OUT}


def _bound(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return value[:PARAM_CHARS]
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth >= PARAM_DEPTH:
        return "…"
    if isinstance(value, dict):
        entries = list(cast(dict[str, object], value).items())[:PARAM_ITEMS]
        return {key: _bound(item, depth + 1) for key, item in entries}
    items = cast(list[object], value)
    return [_bound(item, depth + 1) for item in items[:PARAM_ITEMS]]
