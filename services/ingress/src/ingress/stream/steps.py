"""The view `steps`: the same stream for simple clients that show the steps, the answer and the end.

Events are `ready`, `turn`, `step`, `answer`, `approval`, `compact`, `phase`, `inject`, `done`, `reset` and
`server_shutdown`. Ids are those of the native stream, so a client can resume with either view. When one event becomes
several frames, the last has the id; an event that this view does not show becomes a frame with only its id.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import orjson
from pydantic import ValidationError

from everturn.events import model as events
from everturn.events.model import Envelope, parse_envelope
from everturn.events.views import ApprovalView, StepView, TextView, TurnView
from ingress.stream.frames import HEARTBEAT, escape_line_ends

MAX_REASONING_CHARS = 20_000
"""The longest reasoning text that is kept per thought until it ends."""
_APPROVAL_FIELDS = {"approval_id", "tool_id", "params", "cut", "state", "expires_at", "reason"}
Shown = tuple[str, dict[str, Any]]


async def project_steps(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The chunks of a native stream as this view shows them."""
    projector = StepsProjector()
    async with aclosing(chunks):
        async for chunk in chunks:
            if projected := b"".join(map(projector.project_frame, _split(chunk))):
                yield projected


def _split(chunk: bytes) -> Iterator[bytes]:
    """Split a chunk at empty lines, which occur only at the end of a frame."""
    for frame in chunk.split(b"\n\n"):
        if frame:
            yield frame + b"\n\n"


class StepsProjector:
    """Projects one client's stream. The only state is thoughts that have not ended, and the last turn that has: its end
    can be in a snapshot and follow as an event."""

    def __init__(self) -> None:
        self._thoughts: dict[tuple[str | None, int | None, int], str] = {}
        self._ended: str | None = None

    def project_frame(self, frame: bytes) -> bytes:
        """The frames that represent this one in the view; empty when none do."""
        if frame == HEARTBEAT:
            return frame
        fields = dict(line.split(b": ", 1) for line in frame.rstrip(b"\n").split(b"\n") if b": " in line)
        tail = b"".join(name + b": " + fields[name] + b"\n" for name in (b"retry", b"id") if name in fields)
        try:
            shown = list(self.project(parse_envelope(fields[b"data"])))
        except (KeyError, ValidationError):
            # The event is of a newer worker: this view skips what it does not know.
            shown = []
        if not shown:
            return tail + b"\n" if tail else b""
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
            case events.ChatStep() as step:
                yield "step", {**at, **_build_step(step, envelope.round)}
            case events.ChatDelta(channel="thinking") as delta:
                yield from self._project_thought(envelope, delta)
            case events.ChatDelta(channel="answer") as delta:
                yield from _project_answer(at, delta)
            case events.ChatApproval() as approval:
                yield "approval", {**at, **_build_approval(approval)}
            case events.ChatCompaction(status="started"):
                yield "phase", {**at, "phase": "compacting"}
            case events.ChatCompaction(status="completed") as done:
                yield "compact", {**at, "before_tokens": done.before_tokens, "after_tokens": done.after_tokens}
            case events.ChatPhase() as phase:
                yield "phase", {**at, **phase.model_dump(exclude={"type"}, exclude_none=True)}
            case events.ChatSignal(state="applied", kind="followup" | "steer" | "event", text=text):
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

    def _project_thought(self, envelope: Envelope, delta: events.ChatDelta) -> Iterator[Shown]:
        key = (envelope.turn_id, envelope.round, delta.instance)
        thinking = {"turn_id": envelope.turn_id, "type": "thinking", "iteration": envelope.round}
        if delta.index == 0:
            yield "step", {**thinking, "status": "start"}
        kept = self._thoughts.pop(key, "") + delta.text
        if delta.completed:
            yield "step", {**thinking, "status": "done", "reasoning": kept[:MAX_REASONING_CHARS]}
        else:
            # One turn runs at a time, so an open thought of an earlier turn never ends.
            self._thoughts = {each: text for each, text in self._thoughts.items() if each[0] == envelope.turn_id}
            self._thoughts[key] = kept[:MAX_REASONING_CHARS]

    def _project_turn(self, turn: TurnView) -> Iterator[Shown]:
        """A turn as if the client had followed it from its beginning, with each text in one piece."""
        at = {"turn_id": turn.turn_id}
        yield "turn", {**at, "text": turn.text}
        for step in turn.steps:
            yield "step", {**at, **_build_step(step, step.round)}
        for approval in turn.approvals:
            yield "approval", {**at, **_build_approval(approval)}
        for text in turn.texts:
            if text.channel == "answer":
                yield from _project_answer(at, _as_delta(text, completed=text.round <= turn.sealed_round))
        if turn.outcome or turn.error:
            self._ended = turn.turn_id
            end = {"answer": turn.answer, "iterations": turn.rounds, "elapsed": (turn.elapsed_ms or 0) / 1000}
            usage = turn.usage.model_dump() if turn.usage else None
            error = turn.error.model_dump(exclude_none=True) if turn.error else None
            ended = {"outcome": turn.outcome, "cut_reason": turn.cut_reason, "usage": usage, "error": error}
            yield "done", {**at, **end, **ended}


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


def _build_step(step: events.ChatStep | StepView, iteration: int | None) -> dict[str, Any]:
    fields = {"type": "iteration", "iteration": iteration, "tool_name": step.tool_id or step.title, "step": step.step}
    if step.status == "started":
        code = {"code": step.code, "code_chars": step.code_chars} if step.code is not None else {}
        return {**fields, "status": "start", "tool_args": step.params, **code}
    elapsed = None if step.duration_ms is None else step.duration_ms / 1000
    end = {"observation": step.result_preview, "error": step.error, "iter_elapsed": elapsed}
    return {**fields, "status": "done", **end}


def _build_approval(approval: events.ChatApproval | ApprovalView) -> dict[str, Any]:
    return approval.model_dump(include=_APPROVAL_FIELDS)


def _build_end(end: events.ChatComplete | events.ChatError) -> dict[str, Any]:
    fields = {"iterations": end.rounds, "usage": end.usage.model_dump(), "elapsed": end.elapsed_ms / 1000}
    match end:
        case events.ChatComplete(answer=answer, outcome=outcome, cut_reason=cut_reason):
            return {**fields, "answer": answer, "outcome": outcome, "cut_reason": cut_reason, "error": None}
        case events.ChatError(problem=problem):
            error = problem.model_dump(exclude_none=True)
            return {**fields, "answer": None, "outcome": None, "cut_reason": None, "error": error}


def _encode(name: str, data: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + escape_line_ends(orjson.dumps(data)) + b"\n\n"
