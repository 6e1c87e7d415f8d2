"""Turns that the workflow of a bundle's author runs. Its code is in a process of its own and asks for what it needs;
the answers that must not be repeated are blocks.

A worker that takes over executes the workflow again from its beginning and answers from the blocks what it has asked
for before (`everturn.timeline.authored`). The agent's answer to a task is held until it is known whether the workflow
goes on: if it returns, that is the end of the turn, as in a turn without a workflow; if it asks for more, the answer is
committed as one of several. Whatever the code does, the turn ends once.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, TypeVar

import structlog
from pydantic import Field, ValidationError
from pydantic_core import to_json

from chat_proc.agent.authored.hooks import TurnHooks
from chat_proc.agent.authored.models import (
    Name,
    StreamRequest,
    StructuredRequest,
    WorkflowModels,
    build_stream_answer,
)
from chat_proc.agent.authored.port import Authored, KnowledgeFunction
from chat_proc.agent.authored.requests import (
    READS,
    ContextRequests,
    Key,
    Request,
    build_call_context,
    build_payload,
    build_tool_context,
    describe_files,
    explain_request,
)
from chat_proc.agent.boundaries import TurnBoundaries
from chat_proc.agent.drafting import CUT_CODE, RoundContext, draft_cut_notice, draft_missing_start
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.loop import AgentLoop, HandedOver, HeldEnd, LoopResult, Parked
from chat_proc.agent.prompt.system import load_topic
from chat_proc.agent.signal_folding import through_last_end
from chat_proc.bundles.host.host import HostLost, HostUnavailable, RunRaised, SendDelta
from chat_proc.catalog.tool import ToolCall
from chat_proc.channels.citations import find_used_sids, index_sources
from chat_proc.turn.leased import NOTHING, CommitContent, LeasedTurn, TurnEnd
from everturn.core.cancellation import Stopped, discard_errors, run_until
from everturn.core.errors import Invalid, Unavailable, problem
from everturn.core.ids import CallId
from everturn.core.logging import Redactor
from everturn.core.metrics import AUTHORED_WORKFLOWS_FAILED
from everturn.core.refs import completion_ref, round_ref
from everturn.core.threads import call_sized
from everturn.events.model import ChatFiles, ChatFollowups
from everturn.feedback.model import Feedback, Reaction
from everturn.files.model import Artifact
from everturn.timeline.authored import WorkflowRecord
from everturn.timeline.blocks import (
    BlockDraft,
    BlockType,
    Body,
    ChannelsBody,
    ChannelTextRecord,
    CompletionBody,
    DurableKind,
    DurableStepBody,
    NoticeBody,
    SegmentBody,
    SegmentEndBody,
    WorkflowEndBody,
)
from everturn.timeline.inert import is_blank
from everturn.timeline.progress import ExecuteCalls, GenerateRound
from everturn.timeline.turns import CutReason, Outcome
from everturn_sdk.channels import ChannelFormat
from everturn_sdk.protocol import MAX_ASKS, Question

_log = structlog.get_logger(__name__)

MAX_LOST: Final = 3
"""How often the process of a workflow can be lost in one turn, before the turn ends."""
MAX_SEGMENTS: Final = 20
"""Tasks of one turn. They share its limits of rounds, time, tokens and money."""
MAX_STEPS: Final = 200
"""Steps of one turn."""
MAX_TASK_CHARS: Final = 32_000
MAX_STEP_BYTES: Final = 64 * 1024
"""Size limit of the result of a step, as JSON. The SDK keeps it, too."""
MAX_ERROR_CHARS: Final = 4_000
MAX_FEEDBACK: Final = 20
"""Judgements of one turn by its workflow."""
MAX_MODEL_CALLS: Final = 20
"""Of each kind, in one turn."""
MAX_EMITTED: Final = 100
"""Texts that one turn shows by `self.emit`."""
MAX_EMITTED_CHARS: Final = 32_000
FIRST_EMITTED: Final = 1_000
"""The instance of the first such text, after those of models in the same channel and round."""
MAX_FILES: Final = 20
"""Files that one turn stores by `self.store.put_attachment`."""
MAX_FEEDBACK_CHARS: Final = 10_000
_FAULT: Final[CutReason] = "server_error"

MAX_ANSWER_CHARS: Final = 200_000
"""Length limit of a text that a workflow returns: more than any model writes."""
FailureKind = Literal["raised", "timeout", "crashed", "empty", "long"]
_Effect = Literal["pure", "idempotent", "irreversible"]
_FAILURES: Final[Mapping[FailureKind, str]] = {
    "raised": "It raised an exception.",
    "timeout": "It did not end within the time limit of the turn.",
    "crashed": "Its process ended.",
    "empty": "It gave no answer.",
    "long": "Its answer is too long.",
}
"""For the person; the log has the details."""


class _SegmentRequest(Request):
    number: int = Field(ge=1)
    text: str | None = Field(max_length=MAX_TASK_CHARS)
    serves: frozenset[KnowledgeFunction]


class _StepBegin(Request):
    key: Key
    effect: _Effect


class _FeedbackRequest(Request):
    key: Key
    reaction: Literal["ok", "not_ok", "neutral"]
    text: str = Field(max_length=MAX_FEEDBACK_CHARS)
    confidence: float | None = Field(ge=0, le=1)


class _EmitRequest(Request):
    key: Key
    text: str = Field(min_length=1, max_length=MAX_EMITTED_CHARS)
    marker: Name
    channel: Name
    format: ChannelFormat
    artifact: str | None = Field(max_length=200)


class _FileRequest(Request):
    key: Key
    path: str = Field(min_length=1, max_length=500)
    description: str = Field(max_length=2_000)
    visibility: Literal["internal", "external"]


class _StepEnd(Request):
    key: str
    value: Any = None
    error: str = ""


_Wanted = TypeVar("_Wanted", bound=Request)
_Made = TypeVar("_Made")
_CALLS: Final[Mapping[DurableKind, str]] = {
    "feedback": "feedback",
    "model": "models.structured_call",
    "file": "store.put_attachment",
}


class _Stop(Enum):
    """Why the wait for a workflow ended, apart from what it does itself."""

    BY_PERSON = "by_person"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request of the workflow that waits for its answer."""

    what: Question
    arguments: Mapping[str, Any]
    answered: asyncio.Future[object]
    send: SendDelta
    content: bytes

    def answer(self, value: object) -> None:
        """Nobody waits if the process was lost meanwhile."""
        if not self.answered.done():
            self.answered.set_result(value)

    def refuse(self, why: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(Invalid(why))

    def read(self, kind: type[_Wanted]) -> _Wanted | None:
        """The arguments; None if they are invalid, which refuses the request."""
        try:
            return kind.model_validate(self.arguments)
        except ValidationError as error:
            self.refuse(explain_request(error))
            return None


class _Execution:
    """One execution of a workflow, from its worker's side. What reads only is answered at once, the rest in order."""

    def __init__(self, requests: ContextRequests) -> None:
        self._requests = requests
        self._waiting: asyncio.Queue[_Asked | None] = asyncio.Queue(MAX_ASKS + 1)
        self.effects: dict[str, _Effect] = {}
        """Those of the steps that it has asked for, by their keys."""
        self.asked: set[tuple[str, str]] = set()
        """What else it has asked for once, by kind and key."""

    async def ask(self, what: Question, arguments: Mapping[str, Any], send: SendDelta, content: bytes) -> object:
        if what in READS:
            return await self._requests.answer(what, arguments)
        if self._waiting.qsize() >= MAX_ASKS:
            raise Invalid(f"A workflow can have at most {MAX_ASKS} open requests.")
        asked = _Asked(what, arguments, asyncio.get_running_loop().create_future(), send, content)
        self._waiting.put_nowait(asked)
        return await asked.answered

    async def next(self) -> _Asked | None:
        """The next request; None at the end of the execution."""
        return await self._waiting.get()

    def end(self, _task: asyncio.Task[str | None]) -> None:
        self._waiting.put_nowait(None)


class AuthoredLoop:
    """Runs turns of one kit; keeps no state of them."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies, authored: Authored) -> None:
        self.kit = kit
        self.parts = parts
        self.authored = authored
        self.boundaries = TurnBoundaries(kit, parts)
        self.models = WorkflowModels(kit, parts, authored.markers)
        self.find_loop = cache(self._build_loop)

    def _build_loop(self, serves: frozenset[KnowledgeFunction]) -> AgentLoop:
        """The loop of an agent for whom these functions of the workflow serve."""
        tools = [tool for name, tool in self.authored.knowledge.items() if name in serves]
        return AgentLoop(self.kit.plus(tools), self.parts)

    async def run(self, turn: LeasedTurn, *, takeovers: int = 0) -> LoopResult:
        """As `AgentLoop.run`."""
        return await _AuthoredTurn(self, turn, takeovers).run()


class _AuthoredTurn:
    """One turn, as long as this worker runs it."""

    def __init__(self, shared: AuthoredLoop, turn: LeasedTurn, takeovers: int) -> None:
        self._kit = shared.kit
        self._parts = shared.parts
        self._workflow = shared.authored.workflow
        self._boundaries = shared.boundaries
        self._models = shared.models
        self._files = shared.authored.files
        self._find_loop = shared.find_loop
        self._loop = shared.find_loop(frozenset[KnowledgeFunction]())
        self._grace_s = shared.authored.return_grace_s
        self._failpoints = shared.parts.failpoints
        self._turn = turn
        self._hooks = TurnHooks(self._workflow, turn)
        self._takeovers = takeovers
        """Workers that may have died in a model call that has not been recorded yet."""
        self._record = WorkflowRecord()
        self._taken = 0
        self._held: tuple[int, HeldEnd] | None = None
        """The last task that is answered, by its number, and its answer, which is not committed."""
        self._return_by_s = self._now_s() + self._grace_s

    async def run(self) -> LoopResult:
        if self._read_record().end is not None:
            return await self._loop.run(self._turn, takeovers=self._takeovers)
        has_calls = isinstance(self._turn.progress.next_step(), ExecuteCalls)
        if not has_calls and (ended := await self._try_end_by_person()) is not None:
            return ended
        lost = 0
        while True:
            if self._turn.handover:
                return HandedOver()
            try:
                return await self._execute()
            except HostLost as error:
                lost += 1
                _log.warning("Lost the process of a workflow", **self._names(), lost=lost, error=str(error))
                if lost >= MAX_LOST:
                    return await self._fail("crashed", f"Its process ended {lost} times. {error.detail}")

    async def _execute(self) -> LoopResult:
        """Execute the workflow from its beginning, until the turn stops. Raises HostLost."""
        turn = self._turn
        execution = _Execution(ContextRequests(self._kit, turn, self._files))
        run = self._workflow.run_workflow(build_payload(turn), build_call_context(turn), execution)
        task = asyncio.create_task(run, name="workflow")
        task.add_done_callback(execution.end)
        try:
            return await self._serve(execution, task)
        finally:
            await self._parts.stragglers.end(task)
            discard_errors(task)

    async def _serve(self, execution: _Execution, task: asyncio.Task[str | None]) -> LoopResult:
        while True:
            asked = await self._wait(execution)
            match asked:
                case _Stop.BY_PERSON:
                    stopped = await self._try_end_by_person()
                case _Stop.TIME:
                    return await self._fail("timeout", "It did not end within the time limit of the turn.")
                case None:
                    try:
                        text = task.result()
                    except (RunRaised, Invalid) as error:
                        return await self._fail("raised", error.detail)
                    except HostUnavailable as error:
                        return await self._fail("crashed", error.detail)
                    return await self._finish(text)
                case _Asked(what=what) if what != "step_end" and asked.answered.done():
                    # The process was lost after it had asked.
                    stopped = None
                case _Asked(what="segment"):
                    stopped = await self._run_segment(asked)
                case _Asked(what="step_begin"):
                    stopped = await self._begin_step(execution, asked)
                case _Asked(what="stream"):
                    stopped = await self._stream(execution, asked)
                case _Asked(what="structured"):
                    stopped = await self._call_model(execution, asked)
                case _Asked(what="emit"):
                    stopped = await self._emit(execution, asked)
                case _Asked(what="put_file"):
                    stopped = await self._save_file(execution, asked)
                case _Asked(what="feedback"):
                    stopped = await self._save_feedback(execution, asked)
                case _Asked():
                    await self._end_step(execution, asked)
                    stopped = None
            if stopped is not None:
                return stopped

    async def _wait(self, execution: _Execution) -> _Asked | _Stop | None:
        """What the workflow does next, None if it has ended."""
        left_s = max(self._kit.limits.wall_time_s - self._turn.spent.leased_s, self._return_by_s - self._now_s(), 0.0)
        limit = asyncio.timeout(left_s)
        try:
            async with limit:
                with self._turn.activity.open_call("the workflow"):
                    ran = await run_until(
                        self._wait_for_end(), execution.next(), stragglers=self._parts.stragglers, name="next request"
                    )
        except TimeoutError:
            if not limit.expired():
                raise
            return _Stop.TIME
        return _Stop.BY_PERSON if isinstance(ran, Stopped) else ran.value

    async def _wait_for_end(self) -> None:
        """Return once a signal that ends the turn is pending."""
        while True:
            ring = self._turn.inbox.next_ring
            if through_last_end(await self._turn.inbox.load_unseen()):
                return
            await ring.wait()

    async def _run_segment(self, asked: _Asked) -> LoopResult | None:
        """Let the agent work on a task. Returns how the turn stops if it does in the meantime."""
        if (wanted := asked.read(_SegmentRequest)) is None:
            return None
        number, turn = wanted.number, self._turn
        if (known := self._find_result(number)) is not None:
            asked.answer(known)
            return None
        if (
            stopped := await self._begin_durable(asked, count=number - 1, most=MAX_SEGMENTS, what="calls of react.run")
        ) is not None:
            return stopped
        if asked.answered.done():
            return None
        if number != len(self._record.results) + 1:
            asked.refuse(f"react.run: task {number} does not follow task {len(self._record.results)}.")
            return None
        await self._commit_task(number, wanted.text)
        takeovers, self._takeovers = self._takeovers, 0
        result = await self._find_loop(wanted.serves).run_segment(turn, takeovers=takeovers, hooks=self._hooks)
        self._return_by_s = self._now_s() + self._grace_s
        if not isinstance(result, HeldEnd):
            return result
        self._held = number, result
        asked.answer(self._find_result(number))
        return None

    async def _begin_durable(self, asked: _Asked, *, count: int, most: int, what: str) -> LoopResult | None:
        """Prepare for what a workflow asks for the first time, after `count` others. Returns how the turn stops if this
        worker must not begin it."""
        stopped = self._check_begin(asked, count=count, most=most, what=what)
        if stopped is None and not asked.answered.done():
            await self._commit_held()
        return stopped

    def _check_begin(self, asked: _Asked, *, count: int, most: int, what: str) -> LoopResult | None:
        if self._turn.handover:
            return HandedOver()
        if count >= most:
            asked.refuse(f"A turn can have at most {most} {what}.")
        elif self._turn.spent.leased_s >= self._kit.limits.wall_time_s:
            asked.refuse(f"The turn has reached its time limit of {self._kit.limits.wall_time_s:.0f} s.")
        return None

    async def _commit_task(self, number: int, text: str | None) -> None:
        turn = self._turn
        is_between_rounds = isinstance(turn.progress.next_step(), GenerateRound)
        if text is None or number in self._record.begun or not is_between_rounds:
            return
        context = self._boundaries.build_context(turn, turn.progress.sealed_round + 1)
        body = SegmentBody(number=number, text=load_topic("segment").replace("{task}", text))
        ref = round_ref(turn.turn_id, context.round, f"segment.{number}")
        start = draft_missing_start(context, turn.progress)
        await self._commit("segment", CommitContent((*start, context.draft(BlockType.SEGMENT, ref, body))))

    async def _commit_held(self) -> None:
        """Commit the last answer as one of several."""
        if self._held is None:
            return
        number, held = self._held
        end, turn = held.end, self._turn
        body = _describe_end(number, end)
        context = self._context(end.content)
        draft = context.draft(
            BlockType.SEGMENT_END, round_ref(turn.turn_id, context.round, f"segment.end.{number}"), body
        )
        # An answer of an open turn has no event of its own.
        await self._commit("segment_end", replace(end.content.plus(CommitContent((draft,))), rewind=True))
        self._held = None

    async def _begin_step(self, execution: _Execution, asked: _Asked) -> LoopResult | None:
        """Answer from the record, or let the workflow call the function of the step."""
        if (wanted := asked.read(_StepBegin)) is None:
            return None
        key, known = wanted.key, self._read_record().steps.get(("step", wanted.key))
        if key in execution.effects:
            asked.refuse(f"Two steps of the workflow have the key {key!r}. Give each step of a turn a key of its own.")
            return None
        execution.effects[key] = wanted.effect
        is_interrupted = known is not None and known.state == "begun"
        if known is not None and (not is_interrupted or known.effect == "irreversible"):
            state = "ambiguous" if is_interrupted else known.state
            asked.answer({"state": state, "value": known.value, "error": known.error})
            return None
        if (
            stopped := await self._begin_durable(asked, count=self._count_done("step"), most=MAX_STEPS, what="steps")
        ) is not None:
            return stopped
        if asked.answered.done():
            return None
        if wanted.effect == "irreversible":
            begun = DurableStepBody(key=key, effect=wanted.effect, state="begun")
            await self._commit_step("step_begun", begun)
        asked.answer({"state": "run"})
        return None

    async def _end_step(self, execution: _Execution, asked: _Asked) -> None:
        """Record how a step has ended."""
        if (wanted := asked.read(_StepEnd)) is None:
            return
        effect = execution.effects.get(wanted.key)
        if effect is None:
            asked.refuse(f"The step {wanted.key!r} has not begun.")
            return
        # After the answer of a task that ran meanwhile.
        await self._commit_held()
        value = self._parts.redactor.redact_value(wanted.value)
        error = self._parts.redactor.redact(wanted.error)[:MAX_ERROR_CHARS]
        if not error and len(to_json(value)) > MAX_STEP_BYTES:
            value, error = None, f"its result is longer than {MAX_STEP_BYTES} bytes"
        state = "failed" if error else "done"
        await self._commit_step(
            "step_end", DurableStepBody(key=wanted.key, effect=effect, state=state, value=value, error=error)
        )
        asked.answer(None)

    async def _commit_step(self, name: str, body: DurableStepBody) -> None:
        context = self._context(NOTHING)
        ref = round_ref(self._turn.turn_id, context.round, f"{name}.{len(self._read_record().steps)}")
        await self._commit(name, CommitContent((context.draft(BlockType.DURABLE_STEP, ref, body),)))

    async def _save_feedback(self, execution: _Execution, asked: _Asked) -> LoopResult | None:
        """Add feedback to the turn, together with the answer that it judges if that is not committed."""
        if (wanted := asked.read(_FeedbackRequest)) is None or self._is_known(execution, asked, "feedback", wanted.key):
            return None
        stopped = self._check_begin(
            asked, count=self._count_done("feedback"), most=MAX_FEEDBACK, what="calls of self.feedback"
        )
        if stopped is not None or asked.answered.done():
            return stopped
        turn = self._turn
        text = self._parts.redactor.redact(wanted.text)
        given = Feedback(
            turn.turn_id,
            "machine",
            Reaction(wanted.reaction),
            text,
            datetime.fromisoformat(turn.now()),
            wanted.confidence,
        )
        value = {"reaction": wanted.reaction, "text": text, "confidence": wanted.confidence}
        await self._keep("feedback", wanted.key, value, CommitContent(feedback=(given,)))
        asked.answer(None)
        return None

    async def _stream(self, execution: _Execution, asked: _Asked) -> LoopResult | None:
        """Let a model write in channels, in a round of its own."""
        wanted = asked.read(StreamRequest)
        if wanted is None or not self._take_key(execution, asked, "models.stream_with_channels", wanted.key):
            return None
        known = self._read_record().channels
        if (body := known.get(wanted.key)) is None:
            stopped = await self._begin_durable(
                asked, count=len(known), most=MAX_MODEL_CALLS, what="calls of self.models.stream_with_channels"
            )
            if stopped is not None or asked.answered.done():
                return stopped
            turn = self._turn
            number = turn.progress.sealed_round + 1
            made = await self._make_call(asked, self._models.stream(turn, wanted, number, asked.send), number)
            if not isinstance(made, ChannelsBody):
                return made
            body = made
            await self._commit("channels", self._draft_channels(body, number))
        asked.answer(await build_stream_answer(wanted, body))
        return None

    def _draft_channels(self, body: ChannelsBody, number: int) -> CommitContent:
        turn = self._turn
        context = self._boundaries.build_context(turn, number)
        hidden = _redact_channels(body, self._parts.redactor)
        ref = round_ref(turn.turn_id, number, "channels")
        drafts = (*draft_missing_start(context, turn.progress), context.draft(BlockType.CHANNELS, ref, hidden))
        after = ((ChatFollowups(items=body.followups), number),) if body.followups else ()
        return CommitContent(drafts, after=after, rewind=hidden.texts != body.texts)

    async def _call_model(self, execution: _Execution, asked: _Asked) -> LoopResult | None:
        """Ask a model for a value."""
        wanted = asked.read(StructuredRequest)
        if wanted is None or self._is_known(execution, asked, "model", wanted.key):
            return None
        stopped = self._check_begin(
            asked, count=self._count_done("model"), most=MAX_MODEL_CALLS, what="calls of self.models.structured_call"
        )
        if stopped is not None or asked.answered.done():
            return stopped
        made = await self._make_call(asked, self._models.call(self._turn, wanted), None)
        if made is None or isinstance(made, TurnEnd | HandedOver | Parked):
            return made
        value = self._parts.redactor.redact_value(made)
        await self._keep("model", wanted.key, value, NOTHING)
        asked.answer(value)
        return None

    async def _make_call(
        self, asked: _Asked, call: Coroutine[Any, Any, _Made], number: int | None
    ) -> _Made | LoopResult | None:
        """What a model call gives, while the turn has room for one. Otherwise how the turn stops if it does; None if
        the request was refused. A call with texts has the number of its round."""
        turn = self._turn
        cap = self._boundaries.find_cap(turn, turn.progress.sealed_round + 1)
        if cap is not None or not isinstance(turn.progress.next_step(), GenerateRound):
            call.close()
            asked.refuse(f"The turn has reached {cap}." if cap else "The agent has calls of tools that have not ended.")
            return None
        limit = asyncio.timeout(max(self._kit.limits.wall_time_s - turn.spent.leased_s, 0.0))
        why = "The person has interrupted the call."
        try:
            async with limit:
                ran = await run_until(self._wait_for_end(), call, stragglers=self._parts.stragglers, name="model call")
            if not isinstance(ran, Stopped):
                return ran.value
            if number is not None:
                turn.rewind()
            while through_last_end(await turn.inbox.load_unseen()):
                if (stopped := await self._try_end_by_person()) is not None:
                    return stopped
        except Invalid as error:
            why = error.detail
        except TimeoutError:
            if not limit.expired():
                raise
            why = f"The turn has reached its time limit of {self._kit.limits.wall_time_s:.0f} s."
            if number is not None:
                turn.rewind()
        asked.refuse(why)
        return None

    async def _emit(self, execution: _Execution, asked: _Asked) -> LoopResult | None:
        """Show a text of the workflow, together with the answer that is held if there is one."""
        wanted = asked.read(_EmitRequest)
        if wanted is None or not self._take_key(execution, asked, "emit", wanted.key):
            return None
        known = self._find_emitted()
        if wanted.key in known:
            asked.answer(None)
            return None
        stopped = self._check_begin(asked, count=len(known), most=MAX_EMITTED, what="calls of self.emit")
        if stopped is not None or asked.answered.done():
            return stopped
        try:
            self._models.check_marker(wanted.marker)
        except Invalid as error:
            asked.refuse(error.detail)
            return None
        text = ChannelTextRecord(
            channel=wanted.channel,
            instance=FIRST_EMITTED + len(known),
            raw=wanted.text,
            marker=wanted.marker,
            format=wanted.format,
            artifact=wanted.artifact,
        )
        body = _redact_channels(ChannelsBody(key=wanted.key, texts=(text,)), self._parts.redactor)
        await self._add("emitted", BlockType.EMITTED, f"emitted.{len(known)}", body, CommitContent(rewind=True))
        asked.answer(None)
        return None

    def _find_emitted(self) -> Mapping[str, ChannelsBody]:
        """The texts of the workflow, by key, including those that are held together with an answer."""
        held = () if self._held is None else self._held[1].end.content.drafts
        drafts = [draft.body for draft in held if draft.type is BlockType.EMITTED]
        return {**self._read_record().emitted, **{body.key: body for body in drafts if isinstance(body, ChannelsBody)}}

    async def _save_file(self, execution: _Execution, asked: _Asked) -> LoopResult | None:
        """Store a file of the turn, and show it."""
        wanted = asked.read(_FileRequest)
        if wanted is None or self._is_known(execution, asked, "file", wanted.key):
            return None
        stopped = self._check_begin(
            asked, count=self._count_done("file"), most=MAX_FILES, what="calls of self.store.put_attachment"
        )
        if stopped is not None or asked.answered.done():
            return stopped
        turn = self._turn
        held = () if self._held is None else self._held[1].end.content.artifacts
        call = ToolCall(
            CallId(f"workflow.{wanted.key}"),
            wanted,
            None,
            build_tool_context(turn, turn.progress.sealed_round, turn.blocks),
        )
        try:
            artifact = await self._files.save(
                call,
                wanted.path,
                asked.content,
                visibility=wanted.visibility,
                description=self._parts.redactor.redact(wanted.description),
                others=held,
            )
        except (Invalid, Unavailable) as error:
            asked.refuse(error.detail)
            return None
        shown = turn.show_files((artifact,))
        (value,) = describe_files(turn, (artifact,))
        after = ((ChatFiles(files=shown), turn.progress.sealed_round),) if wanted.visibility == "external" else ()
        content = CommitContent(artifacts=(artifact,), after=after)
        await self._keep("file", wanted.key, value, content, artifacts=(artifact,))
        asked.answer(value)
        return None

    def _take_key(self, execution: _Execution, asked: _Asked, kind: str, key: str) -> bool:
        """Whether no other call of this execution has used the key; otherwise the request is refused."""
        if (kind, key) in execution.asked:
            asked.refuse(f"Two calls of self.{kind} have the key {key!r}. Give each call of a turn a key of its own.")
            return False
        execution.asked.add((kind, key))
        return True

    def _is_known(self, execution: _Execution, asked: _Asked, kind: DurableKind, key: str) -> bool:
        """Whether this was done before, or the key was used before: then the request is answered."""
        if not self._take_key(execution, asked, _CALLS[kind], key):
            return True
        if (known := self._find_done().get((kind, key))) is None:
            return False
        asked.answer(known.value)
        return True

    def _find_done(self) -> Mapping[tuple[str, str], DurableStepBody]:
        """What was done once, by kind and key, including what is held together with an answer."""
        held = () if self._held is None else self._held[1].end.content.drafts
        bodies = [draft.body for draft in held if isinstance(draft.body, DurableStepBody)]
        return {**self._read_record().steps, **{(body.kind, body.key): body for body in bodies}}

    def _count_done(self, kind: DurableKind) -> int:
        return sum(each == kind for each, _ in self._find_done())

    async def _keep(
        self, kind: DurableKind, key: str, value: Any, content: CommitContent, artifacts: tuple[Artifact, ...] = ()
    ) -> None:
        """Commit what was done with its record, or hold it together with the answer that is held."""
        done = DurableStepBody(kind=kind, key=key, effect="idempotent", state="done", value=value, artifacts=artifacts)
        await self._add(kind, BlockType.DURABLE_STEP, f"{kind}.{len(self._find_done())}", done, content)

    async def _add(self, name: str, kind: BlockType, place: str, body: Body, content: CommitContent) -> None:
        """Commit a block with what belongs to it, or hold both together with the answer that is held."""
        context = self._context(NOTHING if self._held is None else self._held[1].end.content)
        ref = round_ref(self._turn.turn_id, context.round, place)
        content = content.plus(CommitContent((context.draft(kind, ref, body),)))
        if self._held is None:
            await self._commit(name, content)
        else:
            number, held = self._held
            self._held = number, replace(held, end=replace(held.end, content=held.end.content.plus(content)))

    async def _commit(self, name: str, content: CommitContent) -> None:
        self._failpoints.hit(f"turn.before_{name}")
        await self._turn.commit(content)
        # Workers that died before this had not come to a later model call.
        self._takeovers = 0
        self._failpoints.hit(f"turn.after_{name}")
        self._read_record()

    async def _finish(self, text: str | None) -> LoopResult:
        """End the turn with what the workflow has returned; None keeps the last answer."""
        if text is not None and is_blank(text):
            return await self._fail("empty", "It returned an empty text.")
        if text is not None and len(text) > MAX_ANSWER_CHARS:
            return await self._fail(
                "long", f"It returned {len(text)} characters; at most {MAX_ANSWER_CHARS} are allowed."
            )
        if self._held is not None:
            _, held = self._held
            answer = _find_answer(held.end.content)
            if text is None or (answer is not None and answer.text == text):
                return await self._close(held, "returned")
            return await self._close(replace(held, end=await self._replace_answer(held.end, text)), "returned")
        record = self._read_record()
        if text is not None and (record.answer is None or record.answer.text != text):
            end = TurnEnd(Outcome.COMPLETED, content=await self._draft_answer(text, NOTHING))
            return await self._close(HeldEnd(end, NOTHING), "returned")
        last = record.results[max(record.results)] if record.results else None
        if last is None or record.answer is None or last.answer is None:
            return await self._fail("empty", last.end.error if last and last.end.error else "It gave no answer.")
        end = TurnEnd(last.end.outcome or Outcome.COMPLETED, cut_reason=last.end.cut_reason)
        return await self._close(HeldEnd(end, NOTHING), "returned")

    async def _replace_answer(self, end: TurnEnd, text: str) -> TurnEnd:
        """The end of a turn whose answer is this text instead of that of the agent, which the person has seen already;
        an error of the agent is settled by it."""
        drafts: list[BlockDraft] = []
        for draft in end.content.drafts:
            if isinstance(draft.body, CompletionBody):
                body = draft.body.model_copy(
                    update={"text": text, "shown": None, "sources_used": await self._find_used(text)}
                )
                drafts.append(replace(draft, body=body))
            elif not (isinstance(draft.body, NoticeBody) and draft.body.code == CUT_CODE):
                drafts.append(draft)
        content = replace(end.content, drafts=tuple(drafts), rewind=True)
        if _find_answer(content) is None:
            content = await self._draft_answer(text, content)
        is_whole = end.outcome in (None, Outcome.CUT)
        return TurnEnd(Outcome.COMPLETED if is_whole else end.outcome, content=content)

    async def _draft_answer(self, text: str, content: CommitContent) -> CommitContent:
        """The content with this text as an answer, in a round of its own unless the content has one."""
        turn = self._turn
        number = max((draft.round for draft in content.drafts), default=turn.progress.sealed_round + 1)
        context = self._boundaries.build_context(turn, number)
        begun = any(draft.type is BlockType.ROUND_START for draft in content.drafts)
        start = [] if begun else draft_missing_start(context, turn.progress)
        body = CompletionBody(text=text, shown=self._find_shown(text), sources_used=await self._find_used(text))
        ref = completion_ref(turn.turn_id, turn.progress.completions + 1)
        drafts = (*start, context.draft(BlockType.COMPLETION, ref, body))
        return replace(content.plus(CommitContent(drafts)), rewind=True)

    def _find_shown(self, text: str) -> str | None:
        """What clients saw of this text if a model has written it as an answer, with citations replaced."""
        texts = [each for body in self._read_record().channels.values() for each in body.texts]
        return next((each.shown for each in reversed(texts) if each.marker == "answer" and each.raw == text), None)

    async def _find_used(self, text: str) -> tuple[int, ...]:
        sources = index_sources(self._turn.pool.rows)
        return await call_sized(len(text), lambda: find_used_sids(sources, text))

    async def _fail(self, kind: FailureKind, why: str) -> LoopResult:
        """End the turn of a workflow that gives no answer: with the agent's last one, otherwise with a problem."""
        AUTHORED_WORKFLOWS_FAILED.labels(kind).inc()
        _log.warning("The workflow of a bundle failed", **self._names(), reason=kind, why=why)
        held = None if self._held is None else self._held[1]
        if held is None and self._read_record().answer is not None:
            held = HeldEnd(TurnEnd(Outcome.CUT, cut_reason=_FAULT), NOTHING)
        elif held is None:
            detail = f"{_FAILURES[kind]} Try again; if it happens again, contact the operator."
            held = HeldEnd(
                TurnEnd(None, problem("workflow-failed", "The agent's workflow failed", 500, detail)), NOTHING
            )
        elif held.end.error is None and held.end.cut_reason is None:
            notice = CommitContent(tuple(draft_cut_notice(self._context(held.end.content), _FAULT)))
            cut = replace(held.end, cut_reason=_FAULT, content=held.end.content.plus(notice))
            if cut.outcome is Outcome.COMPLETED:
                cut = replace(cut, outcome=Outcome.CUT)
            held = replace(held, end=cut)
        return await self._close(held, "failed")

    async def _close(self, held: HeldEnd, state: Literal["returned", "failed"]) -> LoopResult:
        """End the turn, unless a message came first: then the agent alone goes on."""
        turn, content = self._turn, held.end.content
        context = self._context(content)
        ref = round_ref(turn.turn_id, context.round, "workflow.end")
        over = context.draft(BlockType.WORKFLOW_END, ref, WorkflowEndBody(state=state))
        end = replace(held.end, content=content.plus(CommitContent((over,))))
        self._failpoints.hit("turn.workflow_ended")
        if isinstance(turn.progress.next_step(), ExecuteCalls):
            return await self._boundaries.close(turn, end)
        closed = await self._boundaries.try_close(turn, end, held.ready)
        return closed if closed is not None else await self._loop.run(turn)

    async def _try_end_by_person(self) -> LoopResult | None:
        """End a turn that the person has ended; None if they have withdrawn that."""
        turn = self._turn
        if not (ending := through_last_end(await turn.inbox.load_unseen())):
            return None
        if self._held is not None:
            return await self._close(self._held[1], "returned")
        end = self._boundaries.end_by_signals(turn, ending, turn.progress.sealed_round)
        if isinstance(turn.progress.next_step(), ExecuteCalls):
            return await self._boundaries.close(turn, end)
        return await self._boundaries.try_close(turn, end)

    def _find_result(self, number: int) -> dict[str, Any] | None:
        """The result of a task as the workflow gets it; None if the agent has not done it."""
        record = self._read_record()
        if (known := record.results.get(number)) is not None:
            return _build_result(known.end, known.answer, describe_files(self._turn, known.files))
        if self._held is None or self._held[0] != number:
            return None
        end = self._held[1].end
        return _build_result(
            _describe_end(number, end), _find_answer(end.content), describe_files(self._turn, record.files.values())
        )

    def _read_record(self) -> WorkflowRecord:
        blocks = self._turn.turn_blocks
        self._record.take(blocks[self._taken :])
        self._taken = len(blocks)
        return self._record

    def _context(self, content: CommitContent) -> RoundContext:
        """For blocks after this content: they belong to its last round, otherwise to the turn's."""
        number = max((draft.round for draft in content.drafts), default=self._turn.progress.sealed_round)
        return self._boundaries.build_context(self._turn, number)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _names(self) -> dict[str, str]:
        return {"bundle_id": self._workflow.bundle_id, "turn_id": self._turn.turn_id}


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


def _find_answer(content: CommitContent) -> CompletionBody | None:
    return next((draft.body for draft in content.drafts if isinstance(draft.body, CompletionBody)), None)


def _describe_end(number: int, end: TurnEnd) -> SegmentEndBody:
    why = "" if end.error is None else f"{end.error.title}. {end.error.detail or ''}".strip()
    return SegmentEndBody(number=number, outcome=end.outcome, cut_reason=end.cut_reason, error=why)


def _build_result(
    end: SegmentEndBody, answer: CompletionBody | None, files: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What `everturn_sdk.RunResult` holds."""
    outcome = "failed" if end.outcome is None else end.outcome.value
    return {"text": answer.text if answer else "", "outcome": outcome, "error": end.error, "files": list(files)}
