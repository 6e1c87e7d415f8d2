"""Tool calls of programs: the offered tools, and how each call is checked, run once and answered within its limits."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import structlog
from pydantic import BaseModel

from chat_proc.catalog.call_policy import CallContext, CallPolicy, Rejected, report_refusal
from chat_proc.catalog.tool import LiveTurn, Record, Tool, ToolCall, ToolContext, ToolOutcome, ToolRegistry, ToolSpec
from chat_proc.sandbox.results import clean_text
from everturn.core.cancellation import Stragglers
from everturn.core.errors import EverturnError, Invalid, NotFound, StaleFence, Unavailable
from everturn.core.failpoints import Failpoints
from everturn.core.ids import CallId
from everturn.core.lease_timing import LeaseTiming
from everturn.core.logging import Redactor
from everturn.core.metrics import TOOL_CALLS
from everturn.core.refs import call_ref, result_ref
from everturn.events.turn_view import build_ended_step, build_started_step, build_step_event
from everturn.events.views import StepView
from everturn.execution.framing import FrameError, decode_message, encode_frame
from everturn.execution.messages import (
    GATEWAY_FRAME_BYTES,
    MIB,
    ArgumentRule,
    CallRecord,
    Capability,
    GatewayCall,
    ToolGrant,
    ToolReply,
    hash_arguments,
)
from everturn.execution.profiles import ExecutionProfile
from everturn.execution.records import BadMessage, build_message, parse_message
from everturn.timeline.blocks import BlockDraft, BlockType, ToolCallBody, ToolResultBody
from everturn.timeline.seen_urls import ADDRESSES
from everturn.turns.model import Effect, EffectState
from everturn.turns.ports import MAX_EFFECT_REPLY_CHARS, EffectKey, EffectLedger, EffectRecord

_log = structlog.get_logger(__name__)

MAX_CALLS: Final = 100
MAX_BYTES: Final = 32 * MIB
ANSWER_ALLOWANCE_S: Final = 5.0
"""How much longer a grant lasts than its tool's limit: the worker ends a slow tool itself, with a better error."""
INPUTS_ALLOWANCE_S: Final = 60.0
"""How long the files of a run may take before the program's own time begins."""
_TYPES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}

LEASE_UNSURE: Final = "lease_unsure"
"""Error code of a call that was not started because another worker may hold the turn."""
_LENGTH_BYTES: Final = 4

_OUTCOME_UNKNOWN: Final = (
    "It is unknown whether the call took effect, and it is not repeated. Find out before you make it again"
)

MAX_SHOWN_CHARS: Final = 4_000
"""Limit of a call's value on the timeline. The program gets the whole value, and prints or stores what matters."""
MAX_MESSAGE_CHARS: Final = 2_000
_MAX_STRING_CHARS: Final = 500
_MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 6
_ELLIPSIS: Final = "…"

MAX_SIDE_BY_SIDE: Final = 8
"""Concurrent calls of one run; the others wait, and their time limit already runs."""

_CANT_ASK: Final = (
    "this call needs a person's approval, and a program can't wait for it: make the call as an action. Usually, no "
    "approval is needed for addresses that the person wrote, that a search found, or that a page of this conversation "
    "links to"
)

MAX_LISTED_CALLS: Final = 20
"""Calls of a program that the result of its run lists individually."""
_CANCELLED: Final = "The run ended before this call."
_AMBIGUOUS: Final = "The run ended during this call; it is unknown whether it took effect."


def build_capability(specs: Sequence[ToolSpec], timeout_s: float) -> Capability:
    """A grant for each tool; calls can begin while the program can run."""
    return Capability(
        grants=tuple(
            ToolGrant(spec.tool_id, build_rules(spec.params), None, spec.timeout_s + ANSWER_ALLOWANCE_S)
            for spec in specs
        ),
        max_calls=MAX_CALLS,
        max_bytes=MAX_BYTES,
        deadline_s=timeout_s + INPUTS_ALLOWANCE_S if specs else None,
    )


def build_rules(params: type[BaseModel]) -> tuple[ArgumentRule, ...]:
    """The parameters' names in order, with the constraints that the gateway can check."""
    return tuple(_build_rule(name, schema) for name, schema in _properties(params).items())


def describe_tools(specs: Iterable[ToolSpec]) -> str:
    """Markdown lines: the call of each tool with its parameters, its result, and its purpose."""
    return "\n".join(f"- `await {_signature(spec)}` returns {spec.returns}. {spec.summary}" for spec in specs)


def _signature(spec: ToolSpec) -> str:
    required = set(cast("list[str]", spec.params.model_json_schema().get("required", [])))
    parts = [
        f"{name}: {_type_name(schema)}" + ("" if name in required else f" = {schema.get('default')!r}")
        for name, schema in _properties(spec.params).items()
    ]
    return f"{spec.tool_id}({', '.join(parts)})"


def _type_name(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type_name, schema["anyOf"])))
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    return _TYPES.get(str(schema.get("type")), "object")


def _build_rule(name: str, schema: Mapping[str, Any]) -> ArgumentRule:
    kind = schema.get("type")
    return ArgumentRule(
        name,
        one_of=tuple(schema["enum"]) if kind == "string" and "enum" in schema else None,
        max_chars=schema.get("maxLength") if kind == "string" else None,
        max_items=schema.get("maxItems") if kind == "array" else None,
        maximum=schema.get("maximum") if kind in ("integer", "number") else None,
        max_item_chars=schema.get("items", {}).get("maxLength") if kind == "array" else None,
    )


def _properties(params: type[BaseModel]) -> Mapping[str, Mapping[str, Any]]:
    return params.model_json_schema().get("properties", {})


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, and whether it reports the outcome of the call; a tool that hung or crashed reports none."""

    reply: ToolReply
    has_outcome: bool = True


class EffectGuard:
    """Guards the calls of one turn that are not pure. The row of a call is written before it begins, and a repeated run
    gets its recorded reply."""

    def __init__(self, ledger: EffectLedger, live: LiveTurn, *, lease: LeaseTiming | None = None) -> None:
        self._ledger = ledger
        self._live = live
        self._max_lease_age_s = (lease or LeaseTiming()).sure_s

    async def run(
        self, key: EffectKey, effect: Effect, call_id: int, work: Callable[[], Awaitable[Answered]]
    ) -> ToolReply:
        """Run `work` unless this call was completed, or may have been, by an earlier run on another worker."""
        if effect is Effect.PURE:
            return (await work()).reply
        try:
            self._check_lease()
            known = await self._ledger.begin(self._live.lease, key, effect)
            if known is not None and (repeated := _try_repeat(known, effect, call_id)) is not None:
                return repeated
            self._check_lease()
        except _LeaseUnsure as unsure:
            return ToolReply(call_id, False, None, LEASE_UNSURE, str(unsure))
        except (StaleFence, Unavailable) as error:
            return ToolReply(call_id, False, None, LEASE_UNSURE, f"{key.tool_id} was not called: {error}")
        answered = await work()
        reply = answered.reply
        if effect is Effect.IRREVERSIBLE and not answered.has_outcome:
            reply = replace(reply, error_code="ambiguous", error_message=f"{reply.error_message}. {_OUTCOME_UNKNOWN}")
        await self._settle(key, _state_of(effect, answered), reply)
        return reply

    def _check_lease(self) -> None:
        age_s = self._live.lease_age_s()
        if age_s >= self._max_lease_age_s:
            raise _LeaseUnsure(f"not started: this worker's lease was last confirmed {age_s:.0f} s ago; try again")

    async def _settle(self, key: EffectKey, state: EffectState, reply: ToolReply) -> None:
        try:
            await self._ledger.settle(self._live.lease, key, state, encode_reply(reply))
        except (StaleFence, Unavailable) as error:
            # The row marks the call as begun: a repeated run reports its outcome as unknown.
            _log.warning(
                "Could not record the outcome of a program call",
                tool_id=key.tool_id,
                run_call_id=key.run_call_id,
                error=str(error),
            )


class _LeaseUnsure(Exception):
    """Another worker may hold the turn already."""


def encode_reply(reply: ToolReply) -> str:
    """A reply for the ledger; empty if it is too long to store."""
    try:
        return encode_frame(build_message(reply), MAX_EFFECT_REPLY_CHARS)[_LENGTH_BYTES:].decode("ascii")
    except FrameError:
        return ""


def try_decode_reply(recorded: str, call_id: int) -> ToolReply | None:
    """The recorded reply with the number of the current call; None if it can't be read."""
    try:
        return replace(parse_message(decode_message(recorded.encode()), ToolReply), id=call_id)
    except (FrameError, BadMessage):
        return None


def _try_repeat(known: EffectRecord, effect: Effect, call_id: int) -> ToolReply | None:
    """The reply to a call that was begun before; None if it may be made again."""
    recorded = try_decode_reply(known.reply, call_id) if known.reply else None
    if recorded is not None:
        return recorded
    if effect is Effect.IDEMPOTENT:
        return None
    done = known.state in (EffectState.COMMITTED, EffectState.FAILED)
    why = (
        "it was made before, and its result was too long to store"
        if done
        else f"it was started before. {_OUTCOME_UNKNOWN}"
    )
    return ToolReply(call_id, False, None, "ambiguous", f"not repeated: {why}")


def _state_of(effect: Effect, answered: Answered) -> EffectState:
    if answered.reply.ok:
        return EffectState.COMMITTED
    return EffectState.FAILED if answered.has_outcome or effect is Effect.IDEMPOTENT else EffectState.AMBIGUOUS


def bound_arguments(arguments: Mapping[str, object]) -> dict[str, Any]:
    """The arguments as JSON for a block: long strings, lists and deep values cut, bytes replaced by their count."""
    return cast("dict[str, Any]", _bound(arguments, _MAX_DEPTH))


def describe_value(value: object) -> str:
    """A call's value as text of at most MAX_SHOWN_CHARS."""
    text = value if isinstance(value, str) else json.dumps(_bound(value, _MAX_DEPTH), ensure_ascii=False)
    clean = clean_text(text[: MAX_SHOWN_CHARS + 1])
    return clean if len(text) <= MAX_SHOWN_CHARS else clean[:MAX_SHOWN_CHARS] + _ELLIPSIS


def fit_reply(reply: ToolReply) -> ToolReply:
    """The reply, or why it can't be sent: code too_large."""
    if (size := _count(reply.value, GATEWAY_FRAME_BYTES)) > GATEWAY_FRAME_BYTES:
        return _unsendable(reply, f"it has at least {size} characters; at most {GATEWAY_FRAME_BYTES} bytes are allowed")
    try:
        encode_frame(build_message(reply), GATEWAY_FRAME_BYTES)
    except FrameError as error:
        return _unsendable(reply, str(error))
    return reply


def _unsendable(reply: ToolReply, why: str) -> ToolReply:
    return ToolReply(reply.id, False, None, "too_large", f"the result can't be sent: {why}")


def _count(value: object, enough: int) -> int:
    """Characters and bytes in a value; counting stops above `enough`."""
    total, waiting = 0, [value]
    while waiting and total <= enough:
        part = waiting.pop()
        if isinstance(part, str | bytes):
            total += len(part)
        else:
            held = _parts_of(part)
            waiting += held
            total += len(held) + 1
    return total


def _parts_of(value: object) -> list[object]:
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return [*fields.keys(), *fields.values()]
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else []


def _bound(value: object, depth: int) -> object:
    match value:
        case str():
            return clean_text(value if len(value) <= _MAX_STRING_CHARS else value[:_MAX_STRING_CHARS] + _ELLIPSIS)
        case bytes():
            return f"({len(value)} bytes)"
        case bool() | int() | float() | None:
            return value
        case _ if depth == 0:
            return _ELLIPSIS
        case Mapping():
            fields = list(cast("Mapping[object, object]", value).items())[:_MAX_ITEMS]
            return {clean_text(str(key))[:_MAX_STRING_CHARS]: _bound(item, depth - 1) for key, item in fields}
        case list() | tuple():
            return [_bound(item, depth - 1) for item in cast("list[object]", value)[:_MAX_ITEMS]]
        case _:
            return clean_text(str(value)[:_MAX_STRING_CHARS])


@dataclass(frozen=True, slots=True)
class ProgramDependencies:
    """The dependencies for answering calls, shared by all runs of a worker."""

    ledger: EffectLedger
    policy: CallPolicy
    stragglers: Stragglers = field(default_factory=Stragglers)
    redactor: Redactor = field(default_factory=Redactor)
    failpoints: Failpoints = field(default_factory=lambda: Failpoints(""))
    lease: LeaseTiming = field(default_factory=LeaseTiming)


class ProgramTools:
    """The tools that programs may call, none of which needs approval: a program can't wait for a person."""

    def __init__(self, tools: Sequence[Tool], parts: ProgramDependencies) -> None:
        callable_tools = [tool for tool in tools if tool.spec.in_programs and not _always_needs_approval(tool.spec)]
        self._tools = tuple(callable_tools)
        self.registry = ToolRegistry(self._tools)
        self.parts = parts

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self.registry.specs

    def allowed_by(self, profile: ExecutionProfile) -> "ProgramTools":
        """The tools that programs of an execution profile may call."""
        return ProgramTools([tool for tool in self._tools if profile.may_call(tool.spec.tool_id)], self.parts)


@dataclass(frozen=True, slots=True)
class Given:
    """A reply, with the tool's outcome if there is one."""

    reply: ToolReply
    outcome: ToolOutcome | None = None


def _always_needs_approval(spec: ToolSpec) -> bool:
    return spec.requires_approval or spec.asks_after_untrusted


class CallHandler:
    """Answers the calls of one run."""

    def __init__(self, tools: ProgramTools, context: ToolContext) -> None:
        self._registry = tools.registry
        self._parts = tools.parts
        self._context = context
        self._call_context = CallContext(context.principal, context.conversation_id, context.blocks, context.earlier)
        self._guard = EffectGuard(tools.parts.ledger, context.live, lease=tools.parts.lease)
        self._side_by_side = asyncio.Semaphore(MAX_SIDE_BY_SIDE)

    async def answer(self, request: GatewayCall, key: EffectKey, call_id: CallId) -> Given:
        """`call_id` identifies the call for the tool and the timeline. Every outcome becomes a reply."""
        outcomes: list[ToolOutcome] = []
        try:
            spec = self._registry.spec(request.tool_id)
        except Invalid as invalid:
            return Given(self._refuse(request, "not_allowed", invalid.detail))
        try:
            params = self._registry.check_params(request.tool_id, request.arguments, strict=True)
        except Invalid as invalid:
            return Given(self._refuse(request, "bad_arguments", invalid.detail))
        try:
            verdict = await self._parts.policy.review(spec, request.arguments, self._call_context)
        except Unavailable as error:
            return Given(self._refuse(request, "unavailable", str(error)))
        if verdict is not None:
            why = verdict.why if isinstance(verdict, Rejected) else _CANT_ASK
            report_refusal(spec, self._call_context, why)
            return Given(self._refuse(request, "not_allowed", why))

        async def work() -> Answered:
            self._parts.failpoints.hit("turn.in_program_call")
            return await self._run(spec, request, ToolCall(call_id, params, None, self._context), outcomes)

        reply = await self._guard.run(key, spec.effect, request.id, work)
        return Given(reply, outcomes[0] if outcomes else None)

    async def _run(self, spec: ToolSpec, request: GatewayCall, call: ToolCall, outcomes: list[ToolOutcome]) -> Answered:
        working = asyncio.create_task(self._run_in_turn(spec, call), name=f"{spec.tool_id} {call.call_id}")
        try:
            await asyncio.wait({working}, timeout=spec.timeout_s)
        finally:
            await self._parts.stragglers.end(working)
        if not working.done() or working.cancelled():
            late = f"{spec.tool_id} did not finish within {spec.timeout_s:g} s"
            return Answered(self._refuse(request, "timeout", late), has_outcome=False)
        if (error := working.exception()) is not None:
            return self._build_error(spec, request, error)
        outcome = working.result()
        outcomes.append(outcome)
        return Answered(self._build_reply(request, outcome))

    async def _run_in_turn(self, spec: ToolSpec, call: ToolCall) -> ToolOutcome:
        async with self._side_by_side:
            return await self._registry.run(spec.tool_id, call)

    def _build_error(self, spec: ToolSpec, request: GatewayCall, error: BaseException) -> Answered:
        """The tool-call edge: any exception of a tool becomes an error of the program."""
        match error:
            case NotFound():
                return Answered(self._refuse(request, "not_found", str(error)))
            case Unavailable():
                return Answered(self._refuse(request, "unavailable", str(error)), has_outcome=False)
            case EverturnError():
                return Answered(self._refuse(request, "tool_error", str(error)))
            case _:
                _log.error("Tool called by a program raised an exception", tool_id=spec.tool_id, exc_info=error)
                why = f"{spec.tool_id} failed: {type(error).__name__}: {error}"
                return Answered(self._refuse(request, "tool_error", why), has_outcome=False)

    def _build_reply(self, request: GatewayCall, outcome: ToolOutcome) -> ToolReply:
        if outcome.status == "error":
            return self._refuse(request, "tool_error", outcome.text)
        value = outcome.text if outcome.value is None else outcome.value
        fitting = fit_reply(ToolReply(request.id, True, value))
        if not fitting.ok:
            return fitting
        return fit_reply(ToolReply(request.id, True, self._parts.redactor.redact_value(value)))

    def _refuse(self, request: GatewayCall, code: str, message: str) -> ToolReply:
        redacted = self._parts.redactor.redact(message)[:MAX_MESSAGE_CHARS]
        return ToolReply(request.id, False, None, code, redacted.encode("utf-8", "replace").decode())


@dataclass(slots=True)
class _Made:
    """One call in progress."""

    call_id: CallId
    body: ToolCallBody
    args_hash: str
    step: StepView
    began_s: float
    result: ToolResultBody


class ProgramCalls:
    """The calls of one program: each is answered, shown to clients as a step, and recorded for the timeline.

    Implements ToolCaller for one run. Read `records` when the run is over.
    """

    def __init__(self, tools: ProgramTools, run: ToolCall) -> None:
        self._run = run
        self._effects = {spec.tool_id: spec.effect for spec in tools.specs}
        self._untrusted_tools = {spec.tool_id for spec in tools.specs if spec.untrusted}
        self._answerer = CallHandler(tools, run.context)
        self._made: dict[int, _Made] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        self._unbegun: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._monotonic = asyncio.get_running_loop().time
        self.untrusted = False
        """Whether the program got untrusted text."""

    async def __call__(self, call: GatewayCall) -> ToolReply:
        made = self._begin(call)
        key = self._build_key(call.tool_id, made.args_hash)
        try:
            given = await self._answerer.answer(call, key, made.call_id)
            if given.reply.error_code == LEASE_UNSURE:
                # Not begun, so the next attempt reuses its place in the ledger: a repeated run counts attempts from 0.
                self._unbegun[(key.tool_id, key.args_hash)].append(key.occurrence)
            made.result = self._build_result(made, given)
            return given.reply
        finally:
            self._end(made)

    def records(self) -> tuple[Record, ...]:
        """Call and result of each, in the order in which they began."""
        return tuple(
            record
            for made in self._made.values()
            for record in (
                Record(BlockType.TOOL_CALL, self._call_ref(made), made.body, made.call_id),
                Record(BlockType.TOOL_RESULT, self._result_ref(made), made.result, made.call_id),
            )
        )

    def describe(self) -> str:
        """A line for each call with the ref of its result, at most MAX_LISTED_CALLS; empty if there were none."""
        made = list(self._made.values())
        lines = [
            f"- {each.body.tool_id} {each.result.status}: {self._result_ref(each)}" for each in made[:MAX_LISTED_CALLS]
        ]
        more = [f"- and {len(made) - MAX_LISTED_CALLS} more"] if len(made) > MAX_LISTED_CALLS else []
        return "\n".join(["--- tools the program called ---", *lines, *more]) if made else ""

    def find_unmatched(self, audited: Sequence[CallRecord]) -> list[int]:
        """Numbers of calls on which the supervisor's audit and this worker disagree; normally none."""
        ours = {number: (made.body.tool_id, made.args_hash) for number, made in self._made.items()}
        theirs = {record.id: (record.tool_id, record.arguments_sha256) for record in audited}
        # A call in progress when the run ended is not in the audit yet.
        ended = {number for number, made in self._made.items() if made.result.status in ("ok", "error")}
        wrong = [number for number, call in theirs.items() if ours.get(number) != call]
        return sorted({*wrong, *(ended - theirs.keys())})

    def _begin(self, call: GatewayCall) -> _Made:
        call_id = CallId(f"{self._run.call_id}-{call.id}")
        body = ToolCallBody(tool_id=call.tool_id, params=bound_arguments(call.arguments), parent=str(self._run.call_id))
        made = _Made(
            call_id=call_id,
            body=body,
            args_hash=hash_arguments(call.arguments),
            step=self._build_step(call_id, body),
            began_s=self._monotonic(),
            result=self._build_unended(call.tool_id),
        )
        self._made[call.id] = made
        self._run.context.live.emit(build_step_event(made.step))
        return made

    def _end(self, made: _Made) -> None:
        """Finish a call; if the run cut it off, its preset result remains."""
        self.untrusted = self.untrusted or made.result.untrusted
        TOOL_CALLS.labels(made.body.tool_id, made.result.status).inc()
        self._run.context.live.emit(build_step_event(build_ended_step(made.step, made.result)))

    def _build_result(self, made: _Made, given: Given) -> ToolResultBody:
        reply = given.reply
        untrusted = made.body.tool_id in self._untrusted_tools or bool(given.outcome and given.outcome.untrusted)
        text = describe_value(reply.value if reply.ok else f"{reply.error_code}: {reply.error_message}")
        failed = "ambiguous" if reply.error_code == "ambiguous" else "error"
        return ToolResultBody(
            tool_id=made.body.tool_id,
            status="ok" if reply.ok else failed,
            text=text,
            duration_ms=int((self._monotonic() - made.began_s) * 1000),
            untrusted=untrusted and reply.ok,
            data=_address_data(given) if reply.ok else None,
            parent=made.body.parent,
        )

    def _build_unended(self, tool_id: str) -> ToolResultBody:
        """The preset result of a call, used if its run cuts it off."""
        irreversible = self._effects.get(tool_id) is Effect.IRREVERSIBLE
        return ToolResultBody(
            tool_id=tool_id,
            status="ambiguous" if irreversible else "cancelled",
            text=_AMBIGUOUS if irreversible else _CANCELLED,
            parent=str(self._run.call_id),
        )

    def _build_key(self, tool_id: str, args_hash: str) -> EffectKey:
        same = (tool_id, args_hash)
        if unbegun := self._unbegun[same]:
            occurrence = min(unbegun)
            unbegun.remove(occurrence)
        else:
            self._seen[same] += 1
            occurrence = self._seen[same]
        return EffectKey(self._run.context.turn_id, self._run.call_id, tool_id, args_hash, occurrence)

    def _build_step(self, call_id: CallId, body: ToolCallBody) -> StepView:
        context = self._run.context
        ref = call_ref(context.turn_id, call_id)
        draft = BlockDraft(context.turn_id, context.round, BlockType.TOOL_CALL, ref, body, context.now, call_id=call_id)
        return build_started_step(draft, body)

    def _call_ref(self, made: _Made) -> str:
        return call_ref(self._run.context.turn_id, made.call_id)

    def _result_ref(self, made: _Made) -> str:
        return result_ref(self._run.context.turn_id, made.call_id)


def _address_data(given: Given) -> dict[str, Any] | None:
    """Addresses found by the call count as seen, as for a call of the loop."""
    data = given.outcome.data if given.outcome and given.outcome.data else {}
    return {ADDRESSES: data[ADDRESSES]} if ADDRESSES in data else None
