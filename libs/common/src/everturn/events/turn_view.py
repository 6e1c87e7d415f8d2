"""A turn and a conversation as a client sees them, built from stored values, and the events with the same content.
Folding the events gives the views, because both have the same parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import quote

from everturn.conversations.model import Conversation, build_conversation_view
from everturn.core.clock import iso
from everturn.core.ids import TurnId
from everturn.core.refs import log_ref
from everturn.events.cursor import EventCursor
from everturn.events.model import (
    ChatApproval,
    ChatCitations,
    ChatComplete,
    ChatDelta,
    ChatError,
    ChatFollowups,
    ChatPhase,
    ChatSignal,
    ChatStart,
    ChatStep,
)
from everturn.events.views import (
    ApprovalView,
    CitationView,
    EventView,
    FeedbackView,
    FileView,
    SignalView,
    StateView,
    StepDetail,
    StepRoundView,
    StepView,
    TextFormat,
    TextView,
    TurnView,
)
from everturn.feedback.model import Feedback
from everturn.files.model import Artifact
from everturn.timeline.blocks import (
    ApprovalOutcomeBody,
    ApprovalRequestBody,
    AttemptBody,
    Block,
    BlockDraft,
    BlockType,
    ChannelsBody,
    CompletionBody,
    DurableStepBody,
    EventBody,
    ExitBody,
    NotesBody,
    NoticeBody,
    PlanBody,
    RoundStartBody,
    SignalBody,
    StepResultBody,
    ThinkingBody,
    ToolCallBody,
    ToolCodeBody,
    ToolResultBody,
    WorkflowBody,
)
from everturn.timeline.plans import PlanSnapshot
from everturn.timeline.sources import Citation
from everturn.timeline.turns import Signal, SignalState, Turn, TurnStatus, TurnUsage
from everturn.timeline.workflow import Workflow

WRITE_TOOL = "react.write"
SHOWN_CHANNELS = ("canvas", "timeline_text")
"""Channels of WRITE_TOOL whose content clients are shown; the worker streams exactly these."""
PREVIEW_CHARS = 2_000
"""Limit for the result of a call, in views of turns and in events."""
THINKING_CHARS = 20_000
"""Limit for the thinking of one model call where it is sent as one text."""
CODE_CHARS = 4_000
"""Limit for a program, in views of turns and in events. Most programs are shorter."""
PARAM_CHARS = 500
PARAM_ITEMS = 50
PARAM_DEPTH = 6
_LEFT_OUT = frozenset({"content", "code"})
_CHANNEL_RANK = {"thinking": 0, "notes": 1, "timeline_text": 2, "canvas": 2, "answer": 4}
_OTHER_RANK = 3

_FORMATS: dict[str, TextFormat] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
}


def build_file_view(artifact: Artifact, *, tenant: str, project: str) -> FileView:
    """A stored file with the path of its content on the ingress."""
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


def build_started_step(block: Block | BlockDraft, call: ToolCallBody, code: str | None = None) -> StepView:
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
    """The same step with the result of the call. `error` is the kind of failure: error, ambiguous or cancelled."""
    return started.model_copy(
        update={
            "status": "completed" if result.status == "ok" else "error",
            "result_preview": result.text[:PREVIEW_CHARS],
            "duration_ms": result.duration_ms,
            "error": None if result.status == "ok" else result.status,
        }
    )


def build_refused_step(block: Block | BlockDraft, notice: NoticeBody) -> StepView | None:
    """The failed step of a call that the notice refuses; None if it refuses none. Its key is the reference of the
    notice."""
    tool_id = notice.missing_tool or notice.refused_tool
    if tool_id is None:
        return None
    return StepView(
        step=block.ref,
        status="error",
        title=tool_id,
        round=block.round,
        tool_id=tool_id,
        error="The agent has no such tool." if notice.missing_tool else notice.text[:PREVIEW_CHARS],
    )


def build_written_text(block: Block | BlockDraft, call: ToolCallBody, *, instance: int) -> TextView | None:
    """The text that a `react.write` call shows to the person; None for other calls and for internal writing."""
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
    """A text that a call writes for the person to see."""

    channel: str
    path: str | None
    format: TextFormat
    text: str


def find_written_content(call: ToolCallBody) -> WrittenContent | None:
    """The text that a `react.write` call writes for the person, as the model wrote it."""
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


def build_pending_approval(
    block: Block | BlockDraft, body: ApprovalRequestBody, step_id: str | None = None
) -> ApprovalView:
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
        connect_url=body.connect_url or None,
        details=body.details or None,
        step_id=step_id,
    )


def build_settled_approval(asked: ApprovalView, body: ApprovalOutcomeBody) -> ApprovalView:
    """The same question with its outcome."""
    return asked.model_copy(update={"state": body.state, "reason": body.reason})


def try_build_answer_signal(block: Block, body: ApprovalOutcomeBody) -> SignalView | None:
    """The receipt of a person's answer, applied in the round of its outcome; None when no person answered."""
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
    """The approvals of an ended turn, with pending questions withdrawn."""
    return tuple(
        each.model_copy(update={"state": "withdrawn"}) if each.state == "pending" else each for each in approvals
    )


def build_folded_signal(block: Block, body: SignalBody | EventBody, *, tenant: str, project: str) -> SignalView:
    """The receipt of the signal in a `user.followup`, `user.steer` or `event.external` block."""
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
    """Feedback as a client sees it."""
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
    """Sort key of a text in its turn: round, then thinking, notes, written, answer, then instance."""
    return (text.round, _CHANNEL_RANK.get(text.channel, _OTHER_RANK), text.instance, text.channel)


def join_thinking(texts: Iterable[str]) -> str:
    """The thoughts of one model call as one text, in their order."""
    return "\n\n".join(texts)[:THINKING_CHARS]


def format_of_path(path: str) -> TextFormat:
    """The format in which the content of a written file is shown."""
    return _FORMATS.get(PurePosixPath(path.lower()).suffix, "text")


def bound_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters reduced to fit into an event: without `content` and `code`; strings, lists and depth cut."""
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


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn with all that belongs to it; blocks in order of `seq`."""

    turn: Turn
    blocks: tuple[Block, ...]
    signals: tuple[Signal, ...] = ()
    feedback: tuple[Feedback, ...] = ()


def build_turn_view(record: TurnRecord, *, tenant: str, project: str) -> TurnView:
    """The committed state of the turn. Folding the turn's events gives the same."""
    seen = _Seen(tenant, project)
    for block in record.blocks:
        seen.add_block(block)
    for signal in record.signals:
        seen.add_signal(signal)
    turn = record.turn
    attachments = tuple(build_file_view(item, tenant=tenant, project=project) for item in turn.request.attachments)
    asks = any(approval.state == "pending" for approval in seen.approvals)
    # A turn that waits for a program of its own is running for those who look at it.
    status = TurnStatus.RUNNING if turn.status is TurnStatus.WAITING and not asks else turn.status
    return TurnView(
        turn_id=turn.id,
        ordinal=turn.ordinal,
        status=status.value,
        text=turn.request.text,
        attachments=attachments,
        created_at=iso(turn.created_at),
        feedback=tuple(build_feedback_view(item) for item in record.feedback),
        approvals=seen.approvals if turn.status.is_open else withdraw_pending(seen.approvals),
        **seen.fields(),
        **_end_fields(turn, seen),
    )


def try_build_step_detail(record: TurnRecord, step: str, *, tenant: str, project: str) -> StepDetail | None:
    """One step of a turn with its whole program, parameters and result. None when the turn has no such step."""
    steps = build_turn_view(record, tenant=tenant, project=project).steps
    shown = next((each for each in steps if each.step == step), None)
    if shown is None:
        return None
    whole: dict[str, Any] = {}
    for block in record.blocks:
        if block.call_id != shown.call_id:
            continue
        match block.body:
            case ToolCodeBody(text=text):
                whole |= {"code": text, "code_ref": block.ref}
            case ToolCallBody(params=params):
                whole |= {"params": params}
            case ToolResultBody(text=text, artifacts=files, data=data):
                whole |= {"result": text, "result_ref": block.ref, "receipt": _find_receipt(data)}
                logs = [file for file in files if file.ref.startswith(log_ref(record.turn.id, "x")[:-1])]
                if logs:
                    whole |= {"log": build_file_view(logs[0], tenant=tenant, project=project)}
            case _:
                """Notes and files of the call are elsewhere in the turn."""
    return StepDetail(**{**dict(shown), **whole})


def _find_receipt(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The signed receipt in a result; other results have other data, and those of older versions no signature."""
    match data:
        case {"run": {"receipt": {"signature": str()} as receipt}}:
            return receipt
        case _:
            return None


def _end_fields(turn: Turn, seen: "_Seen") -> dict[str, Any]:
    if turn.status.is_open:
        return {"rounds": seen.rounds, "sealed_round": seen.sealed_round}
    if seen.exit is None:
        return {
            "outcome": turn.outcome.value if turn.outcome else None,
            "error": turn.error,
            "usage": turn.usage,
            "rounds": seen.rounds,
            "sealed_round": seen.rounds,
            "elapsed_ms": _elapsed_ms(turn.started_at, turn.ended_at),
        }
    return {
        "outcome": seen.exit.outcome.value if seen.exit.outcome else None,
        "cut_reason": seen.exit.cut_reason,
        "error": seen.exit.error,
        "usage": seen.exit.usage,
        "rounds": seen.exit.rounds,
        "sealed_round": seen.exit.rounds,
        "elapsed_ms": seen.exit.elapsed_ms,
    }


def _elapsed_ms(start: datetime | None, end: datetime | None) -> int:
    return int((end - start).total_seconds() * 1000) if start and end else 0


class _Seen:
    """What the blocks contained so far, for one build. Dictionaries keep the order of first appearance."""

    def __init__(self, tenant: str, project: str) -> None:
        self._tenant = tenant
        self._project = project
        self._texts: dict[tuple[int, str, int], TextView] = {}
        self._steps: dict[str, StepView] = {}
        self._code: dict[str | None, str] = {}
        self._plans: dict[str, PlanSnapshot] = {}
        self._files: dict[str, FileView] = {}
        self._citations: dict[int, CitationView] = {}
        self._signals: dict[str, SignalView] = {}
        self._approvals: dict[str, ApprovalView] = {}
        self._calls_in_round: dict[int, int] = {}
        self._notes_in_round: dict[int, int] = {}
        self._followups: tuple[str, ...] = ()
        """Those that the workflow of an author suggests."""
        self._completion: CompletionBody | None = None
        self._given: TextView | None = None
        """The last answer that was given; not that of a reply that was cut off."""
        self._step_of: dict[int, str] = {}
        """The id of the step of each round that belongs to one."""
        self._workflow = Workflow()
        self._last_sealed = 0
        self._unsealed: set[int] = set()
        """The rounds of lanes whose decisions are not committed."""
        self.exit: ExitBody | None = None
        self.rounds = 0

    @property
    def sealed_round(self) -> int:
        """The last round up to which all texts are committed: lanes have rounds side by side."""
        return min((self._last_sealed, *(number - 1 for number in self._unsealed)))

    def add_block(self, block: Block) -> None:
        if block.type.traits.is_decision:
            self._last_sealed = max(self._last_sealed, block.round)
            self._unsealed.discard(block.round)
        self._workflow.take([block])
        match block.body:
            case RoundStartBody(lane=lane):
                self.rounds = max(self.rounds, block.round)
                if lane:
                    self._step_of[block.round] = lane
                    self._unsealed.add(block.round)
                    self._show_workflow()
            case WorkflowBody() | StepResultBody():
                self._show_workflow()
            case ThinkingBody(text=text, instance=instance):
                self._add_text(block, text, channel="thinking", instance=instance)
            case NotesBody(text=text):
                instance = _take_number(self._notes_in_round, block.round)
                self._add_text(block, text, channel="notes", instance=instance, marker="timeline_text")
            case ChannelsBody() as body:
                self._add_channels(block, body)
            case CompletionBody() as body:
                self._add_completion(block, body)
            case AttemptBody(is_draft=True):
                """The draft of an answer that another call writes."""
            case AttemptBody() if block.round in self._step_of:
                """The answer of a step is its result, not one of the turn."""
            case AttemptBody() as body:
                self._add_text(block, _as_shown(body), channel="answer", instance=body.instance)
            case ToolCodeBody(text=text):
                self._code[block.call_id] = text
            case ToolCallBody() as body:
                self._add_call(block, body)
            case ToolResultBody() as body:
                self._add_result(block, body)
            case NoticeBody() as notice:
                if step := build_refused_step(block, notice):
                    self._steps[step.step] = step.model_copy(update={"step_id": self._step_of.get(block.round)})
            case DurableStepBody(artifacts=files):
                self._add_files(files)
            case ApprovalRequestBody() as body:
                step_id = self._step_of.get(block.round)
                self._approvals[body.approval_id] = build_pending_approval(block, body, step_id)
            case ApprovalOutcomeBody() as body:
                self._add_outcome(block, body)
            case PlanBody(plan=plan):
                self._plans[plan.plan_id] = plan
            case SignalBody() | EventBody() as body:
                view = build_folded_signal(block, body, tenant=self._tenant, project=self._project)
                self._signals[view.signal_id] = view
            case ExitBody() as body:
                self.exit = body
            case _:
                """Clients see nothing of the other blocks."""

    def add_signal(self, signal: Signal) -> None:
        """A row has more than the block that folded it."""
        self._signals[signal.id] = build_signal_view(signal, tenant=self._tenant, project=self._project)

    @property
    def approvals(self) -> tuple[ApprovalView, ...]:
        """In the order in which they were asked."""
        return tuple(self._approvals.values())

    @property
    def texts(self) -> tuple[TextView, ...]:
        """In the order in which they are shown."""
        return tuple(sorted(self._texts.values(), key=text_order))

    def fields(self) -> dict[str, Any]:
        """The fields of the view that blocks and signal rows determine. Signals are in the order of their ids."""
        return {
            "texts": self.texts,
            "steps": tuple(self._steps.values()),
            "plans": tuple(self._plans.values()),
            "files": tuple(self._files.values()),
            "citations": tuple(self._citations[sid] for sid in sorted(self._citations)),
            "signals": tuple(self._signals[signal_id] for signal_id in sorted(self._signals)),
            "answer": _as_shown(self._completion) if self._completion else None,
            "followups": (self._completion.followups if self._completion else ()) or self._followups,
            "sources_used": self._completion.sources_used if self._completion else (),
            "step_rounds": tuple(
                StepRoundView(round=number, step_id=step_id, sealed=number not in self._unsealed)
                for number, step_id in sorted(self._step_of.items())
            ),
        }

    def _show_workflow(self) -> None:
        if (plan := self._workflow.build_snapshot()) is not None:
            self._plans[plan.plan_id] = plan

    def _add_outcome(self, block: Block, body: ApprovalOutcomeBody) -> None:
        if (asked := self._approvals.get(body.approval_id)) is not None:
            self._approvals[asked.approval_id] = build_settled_approval(asked, body)
        if (answer := try_build_answer_signal(block, body)) is not None:
            self._signals[answer.signal_id] = answer

    def _add_text(self, block: Block, text: str, *, channel: str, instance: int, marker: str = "") -> TextView:
        view = TextView(
            round=block.round,
            channel=channel,
            instance=instance,
            marker=marker or channel,
            format="markdown",
            text=text,
        )
        self._keep_text(view)
        return view

    def _add_completion(self, block: Block, body: CompletionBody) -> None:
        last = self._given
        if last is not None and last.format != "json" and have_same_text(last.text, _as_shown(body)):
            self._texts.pop((last.round, last.channel, last.instance), None)
        self._completion = body
        self._citations |= {cited.sid: build_citation_view(cited) for cited in body.citations}
        self._given = self._add_text(block, _as_shown(body), channel="answer", instance=body.instance)

    def _add_channels(self, block: Block, body: ChannelsBody) -> None:
        self._followups = body.followups or self._followups
        for text in body.texts:
            if text.marker:
                view = TextView(
                    round=block.round,
                    channel=text.channel,
                    instance=text.instance,
                    marker=text.marker,
                    format=cast("TextFormat", text.format),
                    text=text.raw if text.shown is None else text.shown,
                    artifact=text.artifact,
                )
                self._keep_text(view)
                self._given = view if view.channel == "answer" else self._given

    def _add_call(self, block: Block, body: ToolCallBody) -> None:
        step = build_started_step(block, body, self._code.pop(block.call_id, None))
        self._steps[step.step] = step.model_copy(update={"step_id": self._step_of.get(block.round)})
        if body.parent is not None:
            # Calls of programs are not actions of a reply; only those are numbered.
            return
        written = build_written_text(block, body, instance=_take_number(self._calls_in_round, block.round))
        if written:
            self._keep_text(written)

    def _keep_text(self, view: TextView) -> None:
        if view.text:
            self._texts[(view.round, view.channel, view.instance)] = view

    def _add_result(self, block: Block, body: ToolResultBody) -> None:
        started = self._steps.get(block.call_id or "")
        if started:
            self._steps[started.step] = build_ended_step(started, body)
        self._add_files(body.artifacts)

    def _add_files(self, artifacts: Iterable[Artifact]) -> None:
        for artifact in artifacts:
            if artifact.visibility == "external":
                self._files[artifact.id] = build_file_view(artifact, tenant=self._tenant, project=self._project)


def have_same_text(one: str, other: str) -> bool:
    """Whether two answers differ at most in blanks and case. Of two such in a row only the last is shown."""
    return one.split() == other.split() or " ".join(one.split()).casefold() == " ".join(other.split()).casefold()


def _as_shown(body: CompletionBody | AttemptBody) -> str:
    return body.text if body.shown is None else body.shown


def _take_number(taken: dict[int, int], round_number: int) -> int:
    number = taken.get(round_number, 0)
    taken[round_number] = number + 1
    return number


def build_start_event(turn: Turn, *, tenant: str, project: str) -> ChatStart:
    """The turn begins."""
    return ChatStart(
        turn_id=turn.id,
        ordinal=turn.ordinal,
        text=turn.request.text,
        attachments=tuple(build_file_view(item, tenant=tenant, project=project) for item in turn.request.attachments),
        created_at=iso(turn.created_at),
    )


def build_step_event(step: StepView) -> ChatStep:
    """A step as it is now. The envelope has the round; only the first event of a step has the program."""
    has_begun = step.status == "started"
    return ChatStep(
        step=step.step,
        status=step.status,
        title=step.title,
        tool_id=step.tool_id,
        call_id=step.call_id,
        params=step.params,
        code=step.code if has_begun else None,
        code_chars=step.code_chars if has_begun else None,
        result_preview=step.result_preview,
        duration_ms=step.duration_ms,
        error=step.error,
        step_id=step.step_id,
    )


def build_lane_events(blocks: Sequence[Block], *, sealed_round: int) -> list[tuple[ChatPhase | ChatDelta, int]]:
    """What new blocks of a lane show of its model calls, as events with their rounds; `sealed_round` is the last one
    whose decision was committed before. Rounds that run side by side are not streamed: each text is sent in one piece
    when it is committed. Answers are not among them: they are results of steps."""
    seen = _Seen("", "")
    for block in blocks:
        seen.add_block(block)
    texts = [text for text in seen.texts if text.channel != "answer"]
    begun = dict.fromkeys(block.round for block in blocks if isinstance(block.body, RoundStartBody))
    decided = dict.fromkeys(
        block.round for block in blocks if block.type.traits.is_decision and block.round > sealed_round
    )
    return [
        *((ChatPhase(phase="model_called"), number) for number in begun),
        *((_build_delta(text), text.round) for text in texts),
        *((ChatPhase(phase="model_thought", thinking=find_thinking(texts, number)), number) for number in decided),
    ]


def find_thinking(texts: Iterable[TextView], round_number: int) -> str:
    """All that the model thought in a round."""
    return join_thinking(text.text for text in texts if text.round == round_number and text.channel == "thinking")


def _build_delta(text: TextView) -> ChatDelta:
    """A whole text as one event."""
    return ChatDelta(
        channel=text.channel,
        instance=text.instance,
        index=0,
        text=text.text,
        completed=True,
        marker=text.marker,
        format=text.format,
        artifact=text.artifact,
    )


def build_answer_events(blocks: Iterable[Block]) -> list[ChatCitations | ChatFollowups]:
    """The events for the answers among these blocks, besides their text: citations and suggested followups."""
    answers: list[ChatCitations | ChatFollowups] = []
    for body in (block.body for block in blocks if isinstance(block.body, CompletionBody)):
        if body.citations:
            answers.append(ChatCitations(sources=tuple(map(build_citation_view, body.citations))))
        if body.followups:
            answers.append(ChatFollowups(items=body.followups))
    return answers


def build_signal_event(signal: SignalView) -> ChatSignal:
    """A receipt as it is now."""
    return ChatSignal(
        signal_id=signal.signal_id,
        kind=signal.kind,
        state=signal.state,
        text=signal.text,
        attachments=signal.attachments,
        round=signal.round,
        promoted_to=signal.promoted_to,
        event=signal.event,
        approval_id=signal.approval_id,
    )


def build_approval_event(approval: ApprovalView) -> ChatApproval:
    """A question as it is now. The envelope has the round."""
    return ChatApproval(**approval.model_dump(exclude={"round"}))


def try_build_terminal_event(turn: TurnView) -> ChatComplete | ChatError | None:
    """The event that ends the turn, from its committed state; None while it is open."""
    usage, elapsed_ms = turn.usage or TurnUsage(), turn.elapsed_ms or 0
    if turn.error:
        return ChatError(problem=turn.error, rounds=turn.rounds, usage=usage, elapsed_ms=elapsed_ms)
    if turn.outcome is None:
        return None
    return ChatComplete(
        outcome=turn.outcome,
        cut_reason=turn.cut_reason,
        answer=turn.answer,
        followups=turn.followups,
        rounds=turn.rounds,
        usage=usage,
        elapsed_ms=elapsed_ms,
        sources_used=turn.sources_used,
    )


@dataclass(frozen=True, slots=True)
class TurnPage:
    """Turns oldest first, all read in one snapshot together with `cursor`, the event id they include.

    `next_cursor` leads to older turns, None when there are none. `open_turn_id` is the turn that has not ended, even if
    it is not on the page.
    """

    conversation: Conversation
    turns: tuple[TurnRecord, ...]
    cursor: EventCursor
    next_cursor: str | None
    open_turn_id: TurnId | None = None


def build_state(page: TurnPage, *, tenant: str, project: str) -> StateView:
    """The page's turns as clients see them; tenant and project are part of the files' addresses."""
    return StateView(
        conversation=build_conversation_view(page.conversation),
        turns=tuple(build_turn_view(record, tenant=tenant, project=project) for record in page.turns),
        cursor=str(page.cursor),
        next_cursor=page.next_cursor,
    )
