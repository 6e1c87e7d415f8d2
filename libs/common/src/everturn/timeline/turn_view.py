"""What a client sees of one turn, built from its row, blocks, signals and feedback."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everturn.model import block_bodies as bodies
from everturn.model.blocks import Block
from everturn.model.feedback import Feedback
from everturn.model.plans import PlanSnapshot
from everturn.model.refs import log_ref
from everturn.model.signals import Signal
from everturn.model.turns import Turn
from everturn.timeline.view_parts import (
    build_asked_approval,
    build_citation_view,
    build_ended_step,
    build_feedback_view,
    build_file_view,
    build_folded_signal,
    build_settled_approval,
    build_signal_view,
    build_started_step,
    build_written_text,
    text_order,
    try_build_answer_signal,
    withdraw_pending,
)
from everturn.wire.times import iso
from everturn.wire.views import (
    ApprovalView,
    CitationView,
    FileView,
    SignalView,
    StepDetail,
    StepView,
    TextView,
    TurnView,
)

_Decided = (
    bodies.ThinkingBody,
    bodies.NotesBody,
    bodies.NoticeBody,
    bodies.RawDecisionBody,
    bodies.ToolCallBody,
    bodies.CompletionBody,
    bodies.AttemptBody,
)


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn with everything that hangs on it; blocks in order of `seq`."""

    turn: Turn
    blocks: tuple[Block, ...]
    signals: tuple[Signal, ...] = ()
    feedback: tuple[Feedback, ...] = ()


def build_turn_view(record: TurnRecord, *, tenant: str, project: str) -> TurnView:
    """The turn as it is committed. Folding the turn's events gives the same."""
    seen = _Seen(tenant, project)
    for block in record.blocks:
        seen.add_block(block)
    for signal in record.signals:
        seen.add_signal(signal)
    turn = record.turn
    attachments = tuple(build_file_view(item, tenant=tenant, project=project) for item in turn.request.attachments)
    return TurnView(
        turn_id=turn.id,
        ordinal=turn.ordinal,
        status=turn.status.value,
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
            case bodies.ToolCodeBody(text=text):
                whole |= {"code": text, "code_ref": block.ref}
            case bodies.ToolCallBody(params=params):
                whole |= {"params": params}
            case bodies.ToolResultBody(text=text, artifacts=files):
                whole |= {"result": text, "result_ref": block.ref}
                logs = [file for file in files if file.ref.startswith(log_ref(record.turn.id, "x")[:-1])]
                if logs:
                    whole |= {"log": build_file_view(logs[0], tenant=tenant, project=project)}
            case _:
                """Notes and files of the call are elsewhere in the turn."""
    return StepDetail(**{**dict(shown), **whole})


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
    """What the blocks have told so far; lives for one build. Dictionaries keep the order of first appearance."""

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
        self._completion: bodies.CompletionBody | None = None
        self._completion_round = 0
        self.exit: bodies.ExitBody | None = None
        self.rounds = 0
        self.sealed_round = 0

    def add_block(self, block: Block) -> None:
        if isinstance(block.body, _Decided):
            self.sealed_round = max(self.sealed_round, block.round)
        match block.body:
            case bodies.RoundStartBody():
                self.rounds = max(self.rounds, block.round)
            case bodies.ThinkingBody(text=text, instance=instance):
                self._add_text(block, text, channel="thinking", instance=instance)
            case bodies.NotesBody(text=text):
                instance = _take_number(self._notes_in_round, block.round)
                self._add_text(block, text, channel="notes", instance=instance, marker="timeline_text")
            case bodies.CompletionBody() as body:
                self._add_completion(block, body)
            case bodies.AttemptBody() as body:
                self._add_text(block, _as_shown(body), channel="answer", instance=body.instance)
            case bodies.ToolCodeBody(text=text):
                self._code[block.call_id] = text
            case bodies.ToolCallBody() as body:
                self._add_call(block, body)
            case bodies.ToolResultBody() as body:
                self._add_result(block, body)
            case bodies.ApprovalRequestBody() as body:
                self._approvals[body.approval_id] = build_asked_approval(block, body)
            case bodies.ApprovalOutcomeBody() as body:
                self._add_outcome(block, body)
            case bodies.PlanBody(plan=plan):
                self._plans[plan.plan_id] = plan
            case bodies.SignalBody() | bodies.EventBody() as body:
                view = build_folded_signal(block, body, tenant=self._tenant, project=self._project)
                self._signals[view.signal_id] = view
            case bodies.ExitBody() as body:
                self.exit = body
            case _:
                """Clients see nothing of the other blocks."""

    def add_signal(self, signal: Signal) -> None:
        """A row knows more than the block that folded it."""
        self._signals[signal.id] = build_signal_view(signal, tenant=self._tenant, project=self._project)

    @property
    def approvals(self) -> tuple[ApprovalView, ...]:
        """In the order in which they were asked."""
        return tuple(self._approvals.values())

    def fields(self) -> dict[str, Any]:
        """The fields of the view that blocks and signal rows decide. Signals stand in the order of their ids."""
        return {
            "texts": tuple(sorted(self._texts.values(), key=text_order)),
            "steps": tuple(self._steps.values()),
            "plans": tuple(self._plans.values()),
            "files": tuple(self._files.values()),
            "citations": tuple(self._citations[sid] for sid in sorted(self._citations)),
            "signals": tuple(self._signals[signal_id] for signal_id in sorted(self._signals)),
            "answer": _as_shown(self._completion) if self._completion else None,
            "followups": self._completion.followups if self._completion else (),
            "sources_used": self._completion.sources_used if self._completion else (),
        }

    def _add_outcome(self, block: Block, body: bodies.ApprovalOutcomeBody) -> None:
        if (asked := self._approvals.get(body.approval_id)) is not None:
            self._approvals[asked.approval_id] = build_settled_approval(asked, body)
        if (answer := try_build_answer_signal(block, body)) is not None:
            self._signals[answer.signal_id] = answer

    def _add_text(self, block: Block, text: str, *, channel: str, instance: int, marker: str = "") -> None:
        view = TextView(
            round=block.round,
            channel=channel,
            instance=instance,
            marker=marker or channel,
            format="markdown",
            text=text,
        )
        self._keep_text(view)

    def _add_completion(self, block: Block, body: bodies.CompletionBody) -> None:
        if self._completion and says_the_same(_as_shown(self._completion), _as_shown(body)):
            self._texts.pop((self._completion_round, "answer", self._completion.instance), None)
        self._completion, self._completion_round = body, block.round
        self._citations |= {cited.sid: build_citation_view(cited) for cited in body.citations}
        self._add_text(block, _as_shown(body), channel="answer", instance=body.instance)

    def _add_call(self, block: Block, body: bodies.ToolCallBody) -> None:
        step = build_started_step(block, body, self._code.pop(block.call_id, None))
        self._steps[step.step] = step
        if body.parent is not None:
            # Calls of programs are not among the actions of a reply, which are what is numbered.
            return
        written = build_written_text(block, body, instance=_take_number(self._calls_in_round, block.round))
        if written:
            self._keep_text(written)

    def _keep_text(self, view: TextView) -> None:
        if view.text:
            self._texts[(view.round, view.channel, view.instance)] = view

    def _add_result(self, block: Block, body: bodies.ToolResultBody) -> None:
        started = self._steps.get(block.call_id or "")
        if started:
            self._steps[started.step] = build_ended_step(started, body)
        for artifact in body.artifacts:
            if artifact.visibility == "external":
                self._files[artifact.id] = build_file_view(artifact, tenant=self._tenant, project=self._project)


def says_the_same(one: str, other: str) -> bool:
    """Whether two answers differ in blanks and case at most. One after the other they are shown once."""
    return one.split() == other.split() or " ".join(one.split()).casefold() == " ".join(other.split()).casefold()


def _as_shown(body: bodies.CompletionBody | bodies.AttemptBody) -> str:
    return body.text if body.shown is None else body.shown


def _take_number(taken: dict[int, int], round_number: int) -> int:
    number = taken.get(round_number, 0)
    taken[round_number] = number + 1
    return number
