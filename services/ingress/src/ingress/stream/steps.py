"""The view `steps`: the same stream for simple clients that show the steps, the answer and the end.

Events are `ready`, `turn`, `step`, `answer`, `approval`, `compact`, `phase`, `inject`, `done`, `reset` and
`server_shutdown`. Ids are those of the native stream, so a client can resume with either view. When one event becomes
several frames, the last has the id; an event that this view does not show becomes a frame with only its id.

A frame follows from its event alone, so a client that resumes gets what it would have got without the interruption.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

import orjson
from pydantic import ValidationError

from everturn.core.threads import call_sized
from everturn.events import model as events
from everturn.events.model import Envelope, parse_envelope
from everturn.events.turn_view import find_thinking, try_build_terminal_event
from everturn.events.views import ApprovalView, StepRoundView, StepView, TextView, TurnView
from ingress.stream.frames import HEARTBEAT, escape_line_ends

_APPROVAL_FIELDS = {
    "approval_id",
    "tool_id",
    "params",
    "cut",
    "state",
    "expires_at",
    "reason",
    "explanation",
    "connect_url",
    "details",
}
_INJECTED = ("followup", "steer", "event")
"""The kinds of signals that add to a turn's input."""
Shown = tuple[str, dict[str, Any]]


async def project_steps(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The chunks of a native stream as this view shows them."""
    projector = StepsProjector()
    async with aclosing(chunks):
        async for chunk in chunks:
            if projected := await call_sized(len(chunk), partial(projector.project_chunk, chunk)):
                yield projected


def _split(chunk: bytes) -> Iterator[bytes]:
    """Split a chunk at empty lines, which occur only at the end of a frame."""
    for frame in chunk.split(b"\n\n"):
        if frame:
            yield frame + b"\n\n"


class StepsProjector:
    """Projects one client's stream. Its only state is the last turn whose end was shown: after a snapshot or a rewind
    that contains the end, the event that ends the turn can follow."""

    def __init__(self) -> None:
        self._ended: str | None = None

    def project_chunk(self, chunk: bytes) -> bytes:
        """The frames that represent those of a chunk."""
        return b"".join(map(self.project_frame, _split(chunk)))

    def project_frame(self, frame: bytes) -> bytes:
        """The frames that represent this one in the view; empty when none do."""
        if frame == HEARTBEAT:
            return frame
        fields = dict(line.split(b": ", 1) for line in frame.rstrip(b"\n").split(b"\n") if b": " in line)
        tail = b"".join(name + b": " + fields[name] + b"\n" for name in (b"retry", b"id") if name in fields)
        try:
            envelope = parse_envelope(fields[b"data"])
        except (KeyError, ValidationError):
            # The event is of a newer worker: this view skips what it does not know.
            return tail + b"\n" if tail else b""
        shown = [(name, {**data, "conversation_id": envelope.conversation_id}) for name, data in self.project(envelope)]
        if not shown:
            return tail + b"\n" if tail else b""
        if b"id" in fields:
            shown[-1][1]["id"] = fields[b"id"].decode()
        frames = b"".join(_encode(name, data) for name, data in shown)
        return frames[:-1] + tail + b"\n"  # the id is last, as in `encode_frame`

    def project(self, envelope: Envelope) -> Iterator[Shown]:
        """Names and payloads of the frames that represent an event."""
        at = {"turn_id": envelope.turn_id}
        match envelope.data:
            case events.Ready(cursor=cursor):
                yield "ready", {"cursor": cursor}
            case events.ConvStatus(state=state, position=position) if state in ("queued", "running", "waiting"):
                yield "phase", {"phase": state, "position": position}
            case events.ChatStart(turn_id=turn_id, text=text):
                yield "turn", {"turn_id": turn_id, "text": text}
            case events.ChatPhase(phase="model_called", step_id=step_id):
                yield "step", {**at, **_start_thinking(envelope.round, step_id)}
            case events.ChatPhase(phase="model_thought", step_id=step_id, thinking=thinking):
                yield "step", {**at, **_end_thinking(envelope.round, step_id, thinking or "")}
            case events.ChatPhase() as phase:
                yield "phase", {**at, **phase.model_dump(exclude={"type"}, exclude_none=True)}
            case events.ChatStep(status="started") as step:
                yield "step", {**at, **_start_iteration(step, envelope.round)}
            case events.ChatStep() as step:
                yield "step", {**at, **_end_iteration(step, envelope.round)}
            case events.ChatDelta(channel="answer") as delta:
                yield from _project_answer(at, delta)
            case events.ChatApproval() as approval:
                yield "approval", {**at, **_build_approval(approval)}
            case events.ChatCompaction(status="started"):
                yield "phase", {**at, "phase": "compacting"}
            case events.ChatCompaction(status="completed") as done:
                messages = {"original_messages": done.original_messages, "kept_messages": done.kept_messages}
                tokens = {"before_tokens": done.before_tokens, "after_tokens": done.after_tokens}
                yield "compact", {**at, **messages, **tokens}
            # Without an id it is a hint, which repeats the state of a signal whenever a client connects.
            case events.ChatSignal(state="applied", kind=kind, text=text) if envelope.id and kind in _INJECTED:
                yield "inject", {**at, "type": "inject", "content": text}
            case events.ChatComplete() | events.ChatError() as end:
                if self._ended != envelope.turn_id:
                    self._ended = envelope.turn_id
                    yield "done", {**at, **_build_end(end)}
            case events.ChatRewind(turn=turn):
                yield "reset", {"turn_id": turn.turn_id}
                yield from self._project_turn(turn)
            case events.StreamSnapshot(state=state):
                yield "reset", {"turn_id": None}
                for turn in state.turns:
                    yield from self._project_turn(turn)
                if state.conversation.state == "waiting":
                    yield "phase", {"phase": "waiting", "position": None}
            case events.ServerShutdown(retry_ms=retry_ms):
                yield "server_shutdown", {"retry_ms": retry_ms}
            case _:
                return

    def _project_turn(self, turn: TurnView) -> Iterator[Shown]:
        """A turn as if the client had followed it from its beginning, with each text in one piece. What is not
        committed yet follows as events."""
        at = {"turn_id": turn.turn_id}
        yield "turn", {**at, "text": turn.text}
        items = (*turn.texts, *turn.steps, *turn.approvals, *turn.step_rounds)
        last = max(turn.sealed_round, *(item.round for item in items), *(each.round or 0 for each in turn.signals), 0)
        of_steps = {each.round: each for each in turn.step_rounds}
        for number in range(last + 1):
            for name, data in _project_round(turn, number, of_steps.get(number)):
                yield name, {**at, **data}
        if (end := try_build_terminal_event(turn)) is not None:
            self._ended = turn.turn_id
            yield "done", {**at, **_build_end(end)}


def _project_round(turn: TurnView, number: int, of_step: StepRoundView | None) -> Iterator[Shown]:
    """Round 0 is what precedes the first model call. The model call of a step is shown as soon as its round has
    begun."""
    step_id = None if of_step is None else of_step.step_id
    is_sealed = 0 < number <= turn.sealed_round if of_step is None else of_step.sealed
    for signal in turn.signals:
        if signal.state == "applied" and signal.kind in _INJECTED and (signal.round or 0) == number:
            yield "inject", {"type": "inject", "content": signal.text}
    if of_step is not None or is_sealed:
        yield "step", _start_thinking(number, step_id)
    if is_sealed:
        yield "step", _end_thinking(number, step_id, find_thinking(turn.texts, number))
    for text in turn.texts:
        if text.round == number and text.channel == "answer":
            yield from _project_answer({}, _as_delta(text, completed=is_sealed))
    steps = [step for step in turn.steps if step.round == number]
    for step in steps:
        yield "step", _start_iteration(step, number)
    for approval in turn.approvals:
        if approval.round == number:
            yield "approval", _build_approval(approval)
    for step in steps:
        if step.status != "started":
            yield "step", _end_iteration(step, number)


def _start_thinking(iteration: int | None, step_id: str | None) -> dict[str, Any]:
    return {"type": "thinking", "status": "start", "iteration": iteration, **_name_step(step_id)}


def _end_thinking(iteration: int | None, step_id: str | None, reasoning: str) -> dict[str, Any]:
    return {"type": "thinking", "status": "done", "iteration": iteration, "reasoning": reasoning, **_name_step(step_id)}


def _name_step(step_id: str | None) -> dict[str, Any]:
    """Only what belongs to a step of a plan names one."""
    return {} if step_id is None else {"step_id": step_id}


def _start_iteration(step: events.ChatStep | StepView, iteration: int | None) -> dict[str, Any]:
    code = {"code": step.code, "code_chars": step.code_chars} if step.code is not None else {}
    return {**_name_iteration(step, iteration, "start"), "tool_args": step.params, **code}


def _end_iteration(step: events.ChatStep | StepView, iteration: int | None) -> dict[str, Any]:
    elapsed = None if step.duration_ms is None else step.duration_ms / 1000
    end = {"observation": step.result_preview, "error": step.error, "iter_elapsed": elapsed}
    return {**_name_iteration(step, iteration, "done"), **end}


def _name_iteration(step: events.ChatStep | StepView, iteration: int | None, status: str) -> dict[str, Any]:
    return {
        "type": "iteration",
        "status": status,
        "iteration": iteration,
        "tool_name": step.tool_id or step.title,
        "step": step.step,
        **_name_step(step.step_id),
    }


def _project_answer(at: dict[str, Any], delta: events.ChatDelta) -> Iterator[Shown]:
    if delta.index == 0:
        yield "step", {**at, "type": "answer", "status": "start"}
        yield "answer", {**at, "status": "start"}
    if delta.text:
        yield "answer", {**at, "status": "delta", "content": delta.text}
    if delta.completed:
        yield "answer", {**at, "status": "done"}


def _as_delta(text: TextView, *, completed: bool) -> events.ChatDelta:
    return events.ChatDelta(
        channel="answer", instance=text.instance, index=0, text=text.text, completed=completed, marker=text.marker
    )


def _build_approval(approval: events.ChatApproval | ApprovalView) -> dict[str, Any]:
    return {**approval.model_dump(include=_APPROVAL_FIELDS), **_name_step(approval.step_id)}


def _build_end(end: events.ChatComplete | events.ChatError) -> dict[str, Any]:
    counts = {"iterations": end.rounds, "usage": end.usage.model_dump(), "elapsed": end.elapsed_ms / 1000}
    match end:
        case events.ChatComplete(answer=answer, outcome=outcome, cut_reason=cut_reason):
            return {"answer": answer, **counts, "outcome": outcome, "cut_reason": cut_reason, "error": None}
        case events.ChatError(problem=problem):
            error = problem.model_dump(exclude_none=True)
            return {"answer": None, **counts, "outcome": None, "cut_reason": None, "error": error}


def _encode(name: str, data: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + escape_line_ends(orjson.dumps(data)) + b"\n\n"
