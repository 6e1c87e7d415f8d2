"""Answers a program's call: checks the arguments, runs the tool within its time, and makes a reply of what comes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from chat_proc.tools.code.effects import Answered, EffectGuard
from chat_proc.tools.code.telling import MAX_MESSAGE_CHARS, fit_reply
from chat_proc.tools.registry import ToolRegistry
from everturn.cancellation import Stragglers
from everturn.errors import EverturnError, Invalid, NotFound, Unavailable
from everturn.model.ids import CallId
from everturn.model.leases import LeaseTiming
from everturn.ports.runs.effects import EffectKey, EffectLedger
from everturn.ports.tool import Tool, ToolCall, ToolContext, ToolOutcome, ToolSpec
from everturn.telemetry.failpoints import Failpoints
from everturn.telemetry.redaction import Redactor
from everturn.tools.call_policy import CallPolicy, Place, Refuse, report_refusal
from everturn.wire.execution import GatewayCall, ToolReply
from everturn.wire.profiles import ExecutionProfile

_log = structlog.get_logger(__name__)

MAX_SIDE_BY_SIDE: Final = 8
"""Calls of one run that work at a time; the others wait, and their time runs."""


@dataclass(frozen=True, slots=True)
class ProgramParts:
    """What answering calls needs, shared by all runs of a worker."""

    ledger: EffectLedger
    policy: CallPolicy
    leftovers: Stragglers = field(default_factory=Stragglers)
    redactor: Redactor = field(default_factory=Redactor)
    failpoints: Failpoints = field(default_factory=lambda: Failpoints(""))
    lease: LeaseTiming = field(default_factory=LeaseTiming)


class ProgramTools:
    """The tools that programs may call: a program can't wait for a person."""

    def __init__(self, tools: Sequence[Tool], parts: ProgramParts) -> None:
        callable_tools = [tool for tool in tools if tool.spec.in_programs and not _always_asks(tool.spec)]
        self._tools = tuple(callable_tools)
        self.registry = ToolRegistry(self._tools)
        self.parts = parts

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self.registry.specs

    def allowed_by(self, profile: ExecutionProfile) -> "ProgramTools":
        """Those that programs of an execution profile may call."""
        return ProgramTools([tool for tool in self._tools if profile.may_call(tool.spec.tool_id)], self.parts)


@dataclass(frozen=True, slots=True)
class Given:
    """A reply, with what the tool gave if it gave something."""

    reply: ToolReply
    outcome: ToolOutcome | None = None


_CANT_ASK: Final = (
    "this call needs a person's approval, and a program can't wait for it: make the call as an action of your own. No "
    "approval is needed for addresses that the person wrote, that a search found, or that a page of this conversation "
    "links to"
)


def _always_asks(spec: ToolSpec) -> bool:
    return spec.requires_approval or spec.asks_after_untrusted


class RunAnswerer:
    """Answers the calls of one run."""

    def __init__(self, tools: ProgramTools, context: ToolContext) -> None:
        self._registry = tools.registry
        self._parts = tools.parts
        self._context = context
        self._place = Place(context.principal, context.conversation_id, context.blocks)
        self._guard = EffectGuard(tools.parts.ledger, context.live, lease=tools.parts.lease)
        self._side_by_side = asyncio.Semaphore(MAX_SIDE_BY_SIDE)

    async def answer(self, asked: GatewayCall, key: EffectKey, call_id: CallId) -> Given:
        """`call_id` is what the tool and the timeline know the call by. Whatever happens becomes a reply."""
        outcomes: list[ToolOutcome] = []
        try:
            spec = self._registry.spec(asked.tool_id)
        except Invalid as invalid:
            return Given(self._refuse(asked, "not_allowed", invalid.detail))
        try:
            params = self._registry.check_params(asked.tool_id, asked.arguments, strict=True)
        except Invalid as invalid:
            return Given(self._refuse(asked, "bad_arguments", invalid.detail))
        try:
            verdict = await self._parts.policy.review(spec, asked.arguments, self._place)
        except Unavailable as error:
            return Given(self._refuse(asked, "unavailable", str(error)))
        if verdict is not None:
            why = verdict.why if isinstance(verdict, Refuse) else _CANT_ASK
            report_refusal(spec, self._place, why)
            return Given(self._refuse(asked, "not_allowed", why))

        async def work() -> Answered:
            self._parts.failpoints.hit("turn.in_program_call")
            return await self._run(spec, asked, ToolCall(call_id, params, None, self._context), outcomes)

        reply = await self._guard.run(key, spec.effect, asked.id, work)
        return Given(reply, outcomes[0] if outcomes else None)

    async def _run(self, spec: ToolSpec, asked: GatewayCall, call: ToolCall, outcomes: list[ToolOutcome]) -> Answered:
        working = asyncio.create_task(self._run_in_turn(spec, call), name=f"{spec.tool_id} {call.call_id}")
        try:
            await asyncio.wait({working}, timeout=spec.timeout_s)
        finally:
            await self._parts.leftovers.end(working)
        if not working.done() or working.cancelled():
            late = f"{spec.tool_id} did not end within {spec.timeout_s:g} s"
            return Answered(self._refuse(asked, "timeout", late), told=False)
        if (error := working.exception()) is not None:
            return self._tell_error(spec, asked, error)
        outcome = working.result()
        outcomes.append(outcome)
        return Answered(self._build_reply(asked, outcome))

    async def _run_in_turn(self, spec: ToolSpec, call: ToolCall) -> ToolOutcome:
        async with self._side_by_side:
            return await self._registry.run(spec.tool_id, call)

    def _tell_error(self, spec: ToolSpec, asked: GatewayCall, error: BaseException) -> Answered:
        """The tool-call edge: whatever a tool raises becomes an error of the program."""
        match error:
            case NotFound():
                return Answered(self._refuse(asked, "not_found", str(error)))
            case Unavailable():
                return Answered(self._refuse(asked, "unavailable", str(error)), told=False)
            case EverturnError():
                return Answered(self._refuse(asked, "tool_error", str(error)))
            case _:
                _log.error("program_tool_raised", tool_id=spec.tool_id, exc_info=error)
                why = f"{spec.tool_id} failed: {type(error).__name__}: {error}"
                return Answered(self._refuse(asked, "tool_error", why), told=False)

    def _build_reply(self, asked: GatewayCall, outcome: ToolOutcome) -> ToolReply:
        if outcome.status == "error":
            return self._refuse(asked, "tool_error", outcome.text)
        value = outcome.text if outcome.value is None else outcome.value
        fitting = fit_reply(ToolReply(asked.id, True, value))
        if not fitting.ok:
            return fitting
        return fit_reply(ToolReply(asked.id, True, self._parts.redactor.redact_value(value)))

    def _refuse(self, asked: GatewayCall, code: str, message: str) -> ToolReply:
        told = self._parts.redactor.redact(message)[:MAX_MESSAGE_CHARS]
        return ToolReply(asked.id, False, None, code, told.encode("utf-8", "replace").decode())
