"""The calls that one program makes: each is answered, shown to clients as a step, and written down for the timeline."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from chat_proc.tools.code.answering import Given, ProgramTools, RunAnswerer
from chat_proc.tools.code.effects import LEASE_UNSURE
from chat_proc.tools.code.telling import bound_arguments, describe_value
from everturn.model.block_bodies import ToolCallBody, ToolResultBody
from everturn.model.blocks import BlockDraft, BlockType, chain_blocks
from everturn.model.commits import Effect
from everturn.model.ids import CallId
from everturn.model.refs import call_ref, result_ref
from everturn.ports.runs.effects import EffectKey
from everturn.ports.tool import Record, ToolCall
from everturn.telemetry.metrics import TOOL_CALLS
from everturn.timeline.seen_addresses import ADDRESSES
from everturn.timeline.turn_events import build_step_event
from everturn.timeline.view_parts import build_ended_step, build_started_step
from everturn.wire.arguments import hash_arguments
from everturn.wire.execution import CallRecord, GatewayCall, ToolReply
from everturn.wire.views import StepView

_log = structlog.get_logger(__name__)

MAX_TOLD: Final = 20
"""Calls of a program that the result of its run names one by one."""
_CANCELLED: Final = "The run ended before this call did."
_AMBIGUOUS: Final = "The run ended during this call; it is unknown whether it took effect."


@dataclass(slots=True)
class _Made:
    """One call on its way."""

    call_id: CallId
    body: ToolCallBody
    args_hash: str
    step: StepView
    began_s: float
    result: ToolResultBody


class ProgramCalls:
    """Implements ToolCaller for one run. Ask for `records` when the run is over."""

    def __init__(self, tools: ProgramTools, run: ToolCall) -> None:
        self._run = run
        self._effects = {spec.tool_id: spec.effect for spec in tools.specs}
        self._strange = {spec.tool_id for spec in tools.specs if spec.untrusted}
        self._answerer = RunAnswerer(tools, run.context)
        self._made: dict[int, _Made] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        self._unbegun: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._monotonic = asyncio.get_running_loop().time
        self.untrusted = False
        """Whether the program got words of strangers."""

    async def __call__(self, call: GatewayCall) -> ToolReply:
        made = self._begin(call)
        key = self._build_key(call.tool_id, made.args_hash)
        try:
            given = await self._answerer.answer(call, key, made.call_id)
            if given.reply.error_code == LEASE_UNSURE:
                # Not begun, so its place in the ledger is for the next try: a repeated run counts the tries anew.
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
        """A line for each call with the ref of its result, at most MAX_TOLD; empty when there were none."""
        made = list(self._made.values())
        lines = [f"- {each.body.tool_id} {each.result.status}: {self._result_ref(each)}" for each in made[:MAX_TOLD]]
        more = [f"- and {len(made) - MAX_TOLD} more"] if len(made) > MAX_TOLD else []
        return "\n".join(["--- tools the program called ---", *lines, *more]) if made else ""

    def find_unmatched(self, audited: Sequence[CallRecord]) -> list[int]:
        """Numbers of calls that the supervisor's audit and this worker tell differently of; none is the rule."""
        ours = {number: (made.body.tool_id, made.args_hash) for number, made in self._made.items()}
        theirs = {record.id: (record.tool_id, record.arguments_sha256) for record in audited}
        # A call that was on its way when the run ended is on no audit yet.
        ended = {number for number, made in self._made.items() if made.result.status in ("ok", "error")}
        wrong = [number for number, told in theirs.items() if ours.get(number) != told]
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
        """With what stands there already when the run cuts the call off."""
        self.untrusted = self.untrusted or made.result.untrusted
        TOOL_CALLS.labels(made.body.tool_id, made.result.status).inc()
        self._run.context.live.emit(build_step_event(build_ended_step(made.step, made.result)))

    def _build_result(self, made: _Made, given: Given) -> ToolResultBody:
        reply = given.reply
        strange = made.body.tool_id in self._strange or bool(given.outcome and given.outcome.untrusted)
        text = describe_value(reply.value if reply.ok else f"{reply.error_code}: {reply.error_message}")
        failed = "ambiguous" if reply.error_code == "ambiguous" else "error"
        return ToolResultBody(
            tool_id=made.body.tool_id,
            status="ok" if reply.ok else failed,
            text=text,
            duration_ms=int((self._monotonic() - made.began_s) * 1000),
            untrusted=strange and reply.ok,
            data=_address_data(given) if reply.ok else None,
            parent=made.body.parent,
        )

    def _build_unended(self, tool_id: str) -> ToolResultBody:
        """What stands there for a call that its run cuts off."""
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
        (block,) = chain_blocks([draft], next_seq=1, last_hash="")
        return build_started_step(block, body)

    def _call_ref(self, made: _Made) -> str:
        return call_ref(self._run.context.turn_id, made.call_id)

    def _result_ref(self, made: _Made) -> str:
        return result_ref(self._run.context.turn_id, made.call_id)


def _address_data(given: Given) -> dict[str, Any] | None:
    """The addresses that the call found count as seen, as those that a call of the loop found."""
    data = given.outcome.data if given.outcome and given.outcome.data else {}
    return {ADDRESSES: data[ADDRESSES]} if ADDRESSES in data else None
