"""What a coding agent does, as steps of its turn: each call of its own is shown while it runs, and recorded after."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from chat_proc.catalog.tool import Record, ToolCall
from chat_proc.sandbox.results import clean_text
from chat_proc.tools.code.program_calls import bound_arguments
from everturn.core.errors import Invalid
from everturn.core.ids import CallId
from everturn.core.refs import call_ref, result_ref
from everturn.events.model import ChatTool
from everturn.events.turn_view import build_ended_step, build_started_step, build_step_event
from everturn.events.views import StepView
from everturn.timeline.blocks import BlockDraft, BlockType, ToolCallBody, ToolResultBody

MAX_STEPS: Final = 500
"""Calls of one run that are recorded. What the agent does beyond that shows in its files and its answer only."""
MAX_INPUT_CHARS: Final = 8_000
"""Of the arguments of one call, as JSON."""
MAX_RESULT_CHARS: Final = 4_000
MAX_DIFF_CHARS: Final = 20_000
MAX_ANSWER_CHARS: Final = 100_000
MAX_NOTICES: Final = 20
SHOWN_CHARS: Final = 2_000
_TOOL: Final = r"^[A-Za-z][A-Za-z0-9_.:-]{0,99}$"

Text = Annotated[str, Field(max_length=20_000)]
Id = Annotated[str, Field(min_length=1, max_length=200)]


def _shorten(given: dict[str, Any]) -> dict[str, Any]:
    """JSON of bounded size, whatever a process of the sandbox sends."""
    bounded = bound_arguments(given)
    text = json.dumps(bounded, ensure_ascii=False)
    return bounded if len(text) <= MAX_INPUT_CHARS else {"shortened": text[:MAX_INPUT_CHARS]}


class _Event(BaseModel):
    """Written in the sandbox, so by nobody that is trusted."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Said(_Event):
    """A part of what the agent writes or thinks."""

    kind: Literal["text", "thinking"]
    text: Text


class CallBegan(_Event):
    """The agent calls a tool of its own. `parent` is the call of the agent that began the one that calls."""

    kind: Literal["began"]
    id: Id
    tool: str = Field(pattern=_TOOL)
    input: Annotated[dict[str, Any], AfterValidator(_shorten)]
    parent: str = Field(default="", max_length=200)


class CallEnded(_Event):
    """`diff` is what the call changed in a file."""

    kind: Literal["ended_call"]
    id: Id
    ok: bool
    text: Text
    diff: Text = ""
    duration_ms: int | None = None
    """Measured by the worker."""


class PlanItem(_Event):
    """One item of the agent's list of tasks."""

    title: str = Field(max_length=500)
    status: str = Field(max_length=40)


class PlanChanged(_Event):
    """The agent's list of tasks as it is now."""

    kind: Literal["plan"]
    items: tuple[PlanItem, ...] = Field(max_length=100)


class Noticed(_Event):
    """Something the person should know, or a line for the operator's log."""

    kind: Literal["notice", "log"]
    text: Text


class Ended(_Event):
    """The agent has ended; `text` is its answer, or what went wrong."""

    kind: Literal["ended", "failed"]
    text: Text


Event = Annotated[Said | CallBegan | CallEnded | PlanChanged | Noticed | Ended, Field(discriminator="kind")]
_EVERY_EVENT: Final = TypeAdapter(tuple[Event, ...])
_EVENTS: Final = TypeAdapter(Annotated[tuple[Event, ...], Field(max_length=200)])


def write_events(events: Sequence[Event]) -> bytes:
    """As one line of JSON."""
    return _EVERY_EVENT.dump_json(tuple(events))


def read_kept_events(line: bytes) -> tuple[Event, ...]:
    """What `write_events` wrote. Raises ValueError."""
    return _EVERY_EVENT.validate_json(line)


def read_events(value: object) -> tuple[Event, ...]:
    """Raises Invalid."""
    try:
        return _EVENTS.validate_python(value)
    except ValidationError as error:
        raise Invalid(f"The driver sent an event that can't be read: {error.errors()[0]['msg']}") from error


@dataclass(slots=True)
class _Made:
    call_id: CallId
    body: ToolCallBody
    step: StepView
    began_s: float
    result: ToolResultBody


@dataclass(slots=True)
class AgentView:
    """Shows and keeps the events of one run. `alias` is the name of the agent in the ids of its tools."""

    call: ToolCall
    alias: str
    monotonic: Callable[[], float]
    answer: str = ""
    failure: str = ""
    has_ended: bool = False
    plan: tuple[PlanItem, ...] = ()
    notices: list[str] = field(default_factory=list[str])
    is_restoring: bool = False
    left_out: int = 0
    """Steps beyond MAX_STEPS."""
    log: list[Event] = field(default_factory=list[Event])
    """The events that a worker which continues the run must know."""
    _made: dict[str, _Made] = field(default_factory=dict[str, _Made])
    _said: str = ""

    def show(self, events: Sequence[Event]) -> None:
        """Events in their order."""
        for event in events:
            match event:
                case Said(kind="text", text=text):
                    self._say(text)
                case Said():
                    """Thoughts are not shown."""
                case CallBegan():
                    self._begin(event)
                case CallEnded():
                    self._end(event)
                case PlanChanged(items=items):
                    self.plan = items
                    self._show_plan()
                case Noticed(kind="notice", text=text) if len(self.notices) < MAX_NOTICES:
                    self.notices.append(clean_text(text))
                    self.log.append(event)
                case Noticed():
                    """Lines of the agent's own log."""
                case Ended(kind="ended", text=text):
                    self.has_ended, self.answer = True, clean_text(text or self._said)[:MAX_ANSWER_CHARS]
                case Ended(text=text):
                    self.failure = clean_text(text)

    def restore(self, events: Sequence[Event]) -> None:
        """Show the events of a worker that was lost again: clients go back to what was committed."""
        self.is_restoring = True
        self.show(events)
        self.is_restoring = False

    def build_records(self) -> tuple[Record, ...]:
        """The blocks of all calls, each with its result. A call that did not end was cut off."""
        for made in self._made.values():
            if made.result.status == "cancelled":
                self._show_end(made)
        turn_id = self.call.context.turn_id
        return tuple(
            record
            for made in self._made.values()
            for record in (
                Record(BlockType.TOOL_CALL, call_ref(turn_id, made.call_id), made.body, made.call_id),
                Record(BlockType.TOOL_RESULT, result_ref(turn_id, made.call_id), made.result, made.call_id),
            )
        )

    def _say(self, text: str) -> None:
        self._said = (self._said + text)[-MAX_ANSWER_CHARS:]
        shown = clean_text(self._said)[-SHOWN_CHARS:]
        self._emit("progress", shown)

    def _show_plan(self) -> None:
        marks = {"completed": "x", "in_progress": "~"}
        lines = [f"[{marks.get(item.status, ' ')}] {clean_text(item.title)}" for item in self.plan]
        self._emit("message", "\n".join(lines)[:SHOWN_CHARS])

    def _emit(self, kind: Literal["progress", "message"], text: str) -> None:
        call_id, tool_id = str(self.call.call_id), "code_agent.run"
        self.call.context.live.emit(ChatTool(call_id=call_id, tool_id=tool_id, kind=kind, text=text))

    def _begin(self, event: CallBegan) -> None:
        if event.id in self._made:
            return
        if len(self._made) >= MAX_STEPS:
            self.left_out += 1
            return
        self._said = ""
        parent = self._made.get(event.parent)
        call_id = CallId(f"{self.call.call_id}-{len(self._made) + 1}")
        body = ToolCallBody(
            tool_id=f"{self.alias}.{event.tool}",
            params=bound_arguments(event.input),
            parent=str(parent.call_id if parent else self.call.call_id),
        )
        context = self.call.context
        ref = call_ref(context.turn_id, call_id)
        draft = BlockDraft(context.turn_id, context.round, BlockType.TOOL_CALL, ref, body, context.now, call_id=call_id)
        step = build_started_step(draft, body)
        cut_off = ToolResultBody(
            tool_id=body.tool_id, status="cancelled", text="The agent ended before this call.", parent=body.parent
        )
        self.log.append(event)
        self._made[event.id] = _Made(call_id, body, step, self.monotonic(), cut_off)
        context.live.emit(build_step_event(step))

    def _end(self, event: CallEnded) -> None:
        took_ms = event.duration_ms if self.is_restoring else None
        if (made := self._made.get(event.id)) is None or made.result.status != "cancelled":
            return
        made.result = ToolResultBody(
            tool_id=made.body.tool_id,
            status="ok" if event.ok else "error",
            text=clean_text(event.text)[:MAX_RESULT_CHARS],
            duration_ms=int((self.monotonic() - made.began_s) * 1000) if took_ms is None else took_ms,
            data=_describe_diff(event.diff),
            parent=made.body.parent,
        )
        kept = {"text": made.result.text, "duration_ms": made.result.duration_ms}
        self.log.append(event.model_copy(update=kept))
        self._show_end(made)

    def _show_end(self, made: _Made) -> None:
        self.call.context.live.emit(build_step_event(build_ended_step(made.step, made.result)))


def _describe_diff(diff: str) -> dict[str, Any] | None:
    return {"diff": clean_text(diff)[:MAX_DIFF_CHARS]} if diff else None
