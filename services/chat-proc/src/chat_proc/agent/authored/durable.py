"""Requests that are fulfilled once in a turn, whatever happens to its workers: tasks of the agent, steps, calls of
models, feedback, texts and files. Each is a block, from which it is answered when the workflow is executed again."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

from pydantic import Field
from pydantic_core import to_json

from chat_proc.agent.authored.context import build_tool_context, describe_files
from chat_proc.agent.authored.ending import TurnStopped, WorkflowEnding
from chat_proc.agent.authored.hooks import TurnHooks
from chat_proc.agent.authored.models import (
    MAX_MODEL_CALLS,
    StreamRequest,
    StructuredRequest,
    WorkflowModels,
    build_stream_answer,
)
from chat_proc.agent.authored.port import Authored, KnowledgeFunction
from chat_proc.agent.authored.progress import WorkflowProgress
from chat_proc.agent.authored.requests import Asked, Key, Name, Refused, Request
from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.drafting import draft_missing_start
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.loop import AgentLoop, HandedOver, HeldEnd
from chat_proc.agent.prompt.system import load_topic
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.catalog.tool import ToolCall
from chat_proc.turn.leased import NOTHING, CommitContent, LeasedTurn
from everturn.core.cancellation import Stopped, run_until
from everturn.core.errors import Invalid, Unavailable
from everturn.core.ids import CallId
from everturn.core.logging import Redactor
from everturn.core.refs import round_ref
from everturn.events.model import ChatFiles, ChatFollowups
from everturn.feedback.model import Feedback, Reaction
from everturn.files.model import Artifact
from everturn.timeline.blocks import (
    BlockType,
    ChannelsBody,
    ChannelTextRecord,
    DurableKind,
    DurableStepBody,
    SegmentBody,
)
from everturn.timeline.progress import GenerateRound
from everturn_sdk.channels import ChannelFormat
from everturn_sdk.protocol import MAX_ERROR_CHARS, MAX_STEP_BYTES

MAX_SEGMENTS: Final = 20
"""Tasks of one turn. They share its limits of rounds, time, tokens and money."""
MAX_TASK_CHARS: Final = 32_000
MAX_EMITTED: Final = 100
"""Texts that one turn shows by `self.emit`."""
MAX_EMITTED_CHARS: Final = 32_000
FIRST_EMITTED: Final = 1_000
"""The instance of the first such text, after those of models in the same channel and round."""
MAX_FEEDBACK_CHARS: Final = 10_000
MAX_STEPS: Final = 200
"""Steps of one turn."""
_FUNCTIONS: Final[Mapping[DurableKind, tuple[str, int]]] = {
    "feedback": ("feedback", 20),
    "model": ("models.structured_call", MAX_MODEL_CALLS),
    "file": ("store.put_attachment", 20),
}
"""What else a workflow can do once: the name of its function, and how many calls one turn can have."""

_Effect = Literal["pure", "idempotent", "irreversible"]
_Made = TypeVar("_Made")


class _SegmentRequest(Request):
    number: int = Field(ge=1)
    text: str | None = Field(max_length=MAX_TASK_CHARS)
    serves: frozenset[KnowledgeFunction]


class _StepBegin(Request):
    key: Key
    effect: _Effect


class _StepEnd(Request):
    key: str
    value: Any = None
    error: str = ""


class _EmitRequest(Request):
    key: Key
    text: str = Field(min_length=1, max_length=MAX_EMITTED_CHARS)
    marker: Name
    channel: Name
    format: ChannelFormat
    artifact: str | None = Field(max_length=200)


class _FeedbackRequest(Request):
    key: Key
    reaction: Literal["ok", "not_ok", "neutral"]
    text: str = Field(max_length=MAX_FEEDBACK_CHARS)
    confidence: float | None = Field(ge=0, le=1)


class _FileRequest(Request):
    key: Key
    path: str = Field(min_length=1, max_length=500)
    description: str = Field(max_length=2_000)
    visibility: Literal["internal", "external"]


@dataclass(frozen=True, slots=True)
class DurableRequests:
    """Those of one execution of a workflow. Fulfils one at a time, because each commits."""

    kit: TurnKit
    parts: LoopDependencies
    authored: Authored
    boundaries: TurnBoundaries
    find_loop: Callable[[frozenset[KnowledgeFunction]], AgentLoop]
    turn: LeasedTurn
    hooks: TurnHooks
    progress: WorkflowProgress
    ending: WorkflowEnding
    models: WorkflowModels
    _effects: dict[str, _Effect] = field(default_factory=dict[str, _Effect], init=False)
    """Those of the steps that were asked for, by their keys."""
    _running: set[str] = field(default_factory=set[str], init=False)
    """The keys of those that run: the workflow calls their functions, and has not reported their ends."""
    _asked: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]], init=False)
    """What else was asked for, by function and key."""

    async def fulfil(self, asked: Asked) -> object:
        """The answer. Raises Refused, and TurnStopped."""
        match asked.what:
            case "segment":
                return await self._run_segment(asked)
            case "step_begin":
                return await self._begin_step(asked)
            case "step_end":
                return await self._end_step(asked)
            case "stream":
                return await self._stream(asked)
            case "structured":
                return await self._call_model(asked)
            case "emit":
                return await self._emit(asked)
            case "put_file":
                return await self._save_file(asked)
            case _:
                return await self._save_feedback(asked)

    async def _run_segment(self, asked: Asked) -> object:
        """Let the agent work on a task."""
        wanted, progress = asked.read(_SegmentRequest), self.progress
        number = wanted.number
        if (known := progress.find_result(number)) is not None:
            return known
        await self._begin_next(asked, number - 1, MAX_SEGMENTS, "calls of react.run")
        if number != (done := len(progress.read_record().results)) + 1:
            raise Refused(f"react.run: task {number} does not follow task {done}.")
        await self._commit_task(number, wanted.text)
        takeovers, progress.takeovers = progress.takeovers, 0
        loop = self.find_loop(wanted.serves)
        result = await loop.run_segment(self.turn, takeovers=takeovers, hooks=self.hooks)
        if not isinstance(result, HeldEnd):
            raise TurnStopped(result)
        progress.hold(number, result)
        return progress.find_result(number)

    async def _commit_task(self, number: int, text: str | None) -> None:
        turn = self.turn
        is_between_rounds = isinstance(turn.progress.next_step(), GenerateRound)
        if text is None or number in self.progress.read_record().begun or not is_between_rounds:
            return
        context = self.boundaries.build_context(turn, turn.progress.sealed_round + 1)
        body = SegmentBody(number=number, text=load_topic("segment").replace("{task}", text))
        ref = round_ref(turn.turn_id, context.round, f"segment.{number}")
        start = draft_missing_start(context, turn.progress)
        await self.progress.commit("segment", CommitContent((*start, context.draft(BlockType.SEGMENT, ref, body))))

    async def _begin_step(self, asked: Asked) -> object:
        """Answer from the record, or let the workflow call the function of the step."""
        wanted = asked.read(_StepBegin)
        key, known = wanted.key, self.progress.read_record().steps.get(("step", wanted.key))
        if key in self._effects:
            raise Refused(f"Two steps of the workflow have the key {key!r}. Give each step of a turn a key of its own.")
        self._effects[key] = wanted.effect
        is_interrupted = known is not None and known.state == "begun"
        if known is not None and (not is_interrupted or known.effect == "irreversible"):
            state = "ambiguous" if is_interrupted else known.state
            return {"state": state, "value": known.value, "error": known.error}
        await self._begin_next(asked, self.progress.count_done("step"), MAX_STEPS, "steps")
        if wanted.effect == "irreversible":
            begun = DurableStepBody(key=key, effect=wanted.effect, state="begun")
            await self._commit_step("step_begun", begun)
        self._running.add(key)
        return {"state": "run"}

    async def _end_step(self, asked: Asked) -> None:
        """Record how a step has ended."""
        wanted = asked.read(_StepEnd)
        if wanted.key not in self._running:
            raise Refused(f"The step {wanted.key!r} does not run.")
        self._running.remove(wanted.key)
        # After the answer of a task that ran meanwhile.
        await self.progress.commit_held()
        value = await asyncio.to_thread(self.parts.redactor.redact_value, wanted.value)
        error = self.parts.redactor.redact(wanted.error)[:MAX_ERROR_CHARS]
        if not error and len(to_json(value)) > MAX_STEP_BYTES:
            value, error = None, f"its result is longer than {MAX_STEP_BYTES} bytes"
        state = "failed" if error else "done"
        body = DurableStepBody(key=wanted.key, effect=self._effects[wanted.key], state=state, value=value, error=error)
        await self._commit_step("step_end", body)

    async def _commit_step(self, name: str, body: DurableStepBody) -> None:
        place = f"{name}.{len(self.progress.read_record().steps)}"
        await self.progress.add(name, BlockType.DURABLE_STEP, place, body)

    async def _stream(self, asked: Asked) -> object:
        """Let a model write in channels, in a round of its own."""
        wanted, turn = asked.read(StreamRequest), self.turn
        self._take_key("models.stream_with_channels", wanted.key)
        known = self.progress.read_record().channels
        if (body := known.get(wanted.key)) is None:
            await self._begin_next(asked, len(known), MAX_MODEL_CALLS, "calls of self.models.stream_with_channels")
            number = turn.progress.sealed_round + 1
            body = await self._call(self.models.stream(turn, wanted, number, asked.send), is_shown=True)
            await self.progress.commit("channels", self._draft_channels(body, number))
        return await build_stream_answer(wanted, body)

    def _draft_channels(self, body: ChannelsBody, number: int) -> CommitContent:
        turn = self.turn
        context = self.boundaries.build_context(turn, number)
        hidden = _redact_channels(body, self.parts.redactor)
        ref = round_ref(turn.turn_id, number, "channels")
        drafts = (*draft_missing_start(context, turn.progress), context.draft(BlockType.CHANNELS, ref, hidden))
        after = ((ChatFollowups(items=body.followups), number),) if body.followups else ()
        return CommitContent(drafts, after=after, rewind=hidden.texts != body.texts)

    async def _call_model(self, asked: Asked) -> object:
        """Ask a model for a value."""
        wanted = asked.read(StructuredRequest)
        if (known := self._begin_once("model", wanted.key)) is not None:
            return known.value
        reply = await self._call(self.models.call(self.turn, wanted), is_shown=False)
        # In a thread: with thousands of values it takes more than 10 ms.
        value = await asyncio.to_thread(self.parts.redactor.redact_value, reply)
        await self._record("model", wanted.key, value, NOTHING)
        return value

    async def _call(self, call: Coroutine[Any, Any, _Made], *, is_shown: bool) -> _Made:
        """What a model call gives, while the turn has room for one. Clients see the texts of some while they are
        written. Raises Refused, and TurnStopped if the person ends the turn meanwhile."""
        turn = self.turn
        cap = self.boundaries.find_cap(turn, turn.progress.sealed_round + 1)
        if cap is not None or not isinstance(turn.progress.next_step(), GenerateRound):
            call.close()
            raise Refused(
                f"The turn has reached {cap}." if cap else "The agent has calls of tools that have not ended."
            )
        limit = asyncio.timeout(max(self.kit.limits.wall_time_s - turn.spent.leased_s, 0.0))
        try:
            async with limit:
                person = self.ending.wait_for_person()
                ran = await run_until(person, call, stragglers=self.parts.stragglers, name="model call")
            if not isinstance(ran, Stopped):
                return ran.value
            if is_shown:
                turn.rewind()
            while through_last_end(await turn.inbox.load_unseen()):
                if (stopped := await self.ending.try_end_by_person()) is not None:
                    raise TurnStopped(stopped)
        except Invalid as error:
            raise Refused(error.detail) from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            if is_shown:
                turn.rewind()
            raise Refused(f"The turn has reached its time limit of {self.kit.limits.wall_time_s:.0f} s.") from error
        raise Refused("The person has interrupted the call.")

    async def _emit(self, asked: Asked) -> None:
        """Show a text of the workflow, together with the answer that is held if there is one."""
        wanted, known = asked.read(_EmitRequest), self.progress.find_emitted()
        self._take_key("emit", wanted.key)
        if wanted.key in known:
            return
        self._check_begin(len(known), MAX_EMITTED, "calls of self.emit")
        try:
            self.models.check_marker(wanted.marker)
        except Invalid as error:
            raise Refused(error.detail) from error
        text = ChannelTextRecord(
            channel=wanted.channel,
            instance=FIRST_EMITTED + len(known),
            raw=wanted.text,
            marker=wanted.marker,
            format=wanted.format,
            artifact=wanted.artifact,
        )
        body = _redact_channels(ChannelsBody(key=wanted.key, texts=(text,)), self.parts.redactor)
        place = f"emitted.{len(known)}"
        await self.progress.add("emitted", BlockType.EMITTED, place, body, CommitContent(rewind=True))

    async def _save_feedback(self, asked: Asked) -> object:
        """Add feedback to the turn, together with the answer that it judges if that is not committed."""
        wanted, turn = asked.read(_FeedbackRequest), self.turn
        if (known := self._begin_once("feedback", wanted.key)) is not None:
            return known.value
        text, reaction = self.parts.redactor.redact(wanted.text), Reaction(wanted.reaction)
        now = datetime.fromisoformat(turn.now())
        given = Feedback(turn.turn_id, "machine", reaction, text, now, wanted.confidence)
        value = {"reaction": wanted.reaction, "text": text, "confidence": wanted.confidence}
        await self._record("feedback", wanted.key, value, CommitContent(feedback=(given,)))
        return None

    async def _save_file(self, asked: Asked) -> object:
        """Store a file of the turn, and show it."""
        wanted, turn = asked.read(_FileRequest), self.turn
        if (known := self._begin_once("file", wanted.key)) is not None:
            return known.value
        context = build_tool_context(turn, turn.progress.sealed_round, turn.blocks, self.kit.limits)
        try:
            artifact = await self.authored.files.save(
                ToolCall(CallId(f"workflow.{wanted.key}"), wanted, None, context),
                wanted.path,
                asked.content,
                visibility=wanted.visibility,
                description=self.parts.redactor.redact(wanted.description),
                others=self.progress.held_content.artifacts,
            )
        except (Invalid, Unavailable) as error:
            raise Refused(error.detail) from error
        shown = turn.show_files((artifact,))
        (value,) = describe_files(turn, (artifact,))
        after = ((ChatFiles(files=shown), turn.progress.sealed_round),) if wanted.visibility == "external" else ()
        content = CommitContent(artifacts=(artifact,), after=after)
        await self._record("file", wanted.key, value, content, artifacts=(artifact,))
        return value

    def _take_key(self, function: str, key: str) -> None:
        """Raise Refused if another call of this execution has used the key."""
        if (function, key) in self._asked:
            raise Refused(
                f"Two calls of self.{function} have the key {key!r}. Give each call of a turn a key of its own."
            )
        self._asked.add((function, key))

    def _begin_once(self, kind: DurableKind, key: str) -> DurableStepBody | None:
        """The record if it was done before. Raises Refused and TurnStopped, as _check_begin."""
        function, most = _FUNCTIONS[kind]
        self._take_key(function, key)
        if (known := self.progress.find_done().get((kind, key))) is None:
            self._check_begin(self.progress.count_done(kind), most, f"calls of self.{function}")
        return known

    async def _begin_next(self, asked: Asked, count: int, most: int, what: str) -> None:
        """Prepare for what comes after the last answer of the agent, which is not the end of the turn then."""
        self._check_begin(count, most, what)
        await self.progress.commit_held()
        if asked.answered.done():
            # What nobody waits for is not begun.
            raise Refused("The process was lost.")

    def _check_begin(self, count: int, most: int, what: str) -> None:
        """Raise Refused if the turn has no room for what is asked for the first time, after `count` others, and
        TurnStopped if this worker must not begin it."""
        if self.turn.handover:
            raise TurnStopped(HandedOver())
        if count >= most:
            raise Refused(f"A turn can have at most {most} {what}.")
        if self.turn.spent.leased_s >= self.kit.limits.wall_time_s:
            raise Refused(f"The turn has reached its time limit of {self.kit.limits.wall_time_s:.0f} s.")

    async def _record(
        self, kind: DurableKind, key: str, value: Any, content: CommitContent, artifacts: tuple[Artifact, ...] = ()
    ) -> None:
        """Commit what was done with its record, or hold it together with the answer that is held."""
        done = DurableStepBody(kind=kind, key=key, effect="idempotent", state="done", value=value, artifacts=artifacts)
        place = f"{kind}.{len(self.progress.find_done())}"
        await self.progress.add(kind, BlockType.DURABLE_STEP, place, done, content)


def _redact_channels(body: ChannelsBody, redactor: Redactor) -> ChannelsBody:
    """The same without secrets of the platform."""
    texts = tuple(
        text.model_copy(
            update={
                "raw": redactor.redact(text.raw),
                "shown": None if text.shown is None else redactor.redact(text.shown),
            }
        )
        for text in body.texts
    )
    return body.model_copy(update={"texts": texts, "meta": redactor.redact_value(body.meta)})
