"""Runs one tool call to its end, whatever happens in it, and says what goes on the timeline and to the clients."""

import asyncio
import hashlib
import json
import time

import structlog

from chat_proc.agent.catalog import ToolCatalog
from chat_proc.agent.drafting import RoundPlace
from chat_proc.agent.open_turn import OpenTurn, Writing
from chat_proc.agent.race import Stopped, run_until
from everturn.errors import Invalid
from everturn.model.block_bodies import PlanBody, ToolCallBody, ToolResultBody
from everturn.model.blocks import BlockDraft, BlockType
from everturn.model.commits import Effect, EffectChange, EffectState
from everturn.model.ids import CallId
from everturn.model.refs import result_ref
from everturn.ports.tool import ToolCall, ToolContext, ToolOutcome, ToolSpec
from everturn.telemetry.failpoints import Failpoints
from everturn.telemetry.metrics import TOOL_CALLS
from everturn.timeline.next_step import PendingCall
from everturn.timeline.view_parts import build_ended_step, build_started_step
from everturn.wire.events import AnyEvent, ChatFiles, ChatPlan, ChatStep
from everturn.wire.views import StepView

_log = structlog.get_logger(__name__)

_EFFECT_STATES = {
    "ok": EffectState.COMMITTED,
    "error": EffectState.FAILED,
    "cancelled": EffectState.FAILED,
    "ambiguous": EffectState.AMBIGUOUS,
}


class ToolRunner:
    """The one place where a tool's exception becomes a result."""

    def __init__(self, catalog: ToolCatalog, failpoints: Failpoints) -> None:
        self._catalog = catalog
        self._failpoints = failpoints

    async def run(self, turn: OpenTurn, pending: PendingCall, place: RoundPlace, *, resumed: bool) -> Writing:
        """Run a pending call. A `resumed` one may have begun before: it is repeated only if that does no harm."""
        call_id = pending.block.call_id or CallId("")
        started = time.monotonic()
        try:
            spec = self._catalog.spec(pending.body.tool_id)
            if resumed and spec.effect is Effect.IRREVERSIBLE:
                result = _ambiguous(pending.body)
                outcome = None
            else:
                outcome = await self._call(turn, spec, pending, call_id)
                result = _result(pending.body, outcome)
        except Invalid as gone:
            # Offered when the call was made, and not any more: another worker has other tools.
            outcome, result = None, _failed(pending.body, gone.detail)
        result = result.model_copy(update={"duration_ms": int((time.monotonic() - started) * 1000)})
        TOOL_CALLS.labels(pending.body.tool_id, result.status).inc()
        return self._build_writing(turn, pending, place, result, outcome)

    async def _call(
        self, turn: OpenTurn, spec: ToolSpec, pending: PendingCall, call_id: CallId
    ) -> ToolOutcome | Stopped:
        params = self._catalog.check_params(spec.tool_id, pending.body.params)
        context = ToolContext(
            turn.principal, turn.conversation_id, turn.turn_id, pending.block.round, turn.blocks, turn.now()
        )
        work = self._bounded(spec, ToolCall(call_id, params, pending.code, context))
        if not spec.cancellable:
            return await work
        ran = await run_until(turn.inbox.wait_for_control(), work)
        return ran if isinstance(ran, Stopped) else ran.value

    async def _bounded(self, spec: ToolSpec, call: ToolCall) -> ToolOutcome:
        self._failpoints.hit("turn.in_tool")
        try:
            async with asyncio.timeout(spec.timeout_s):
                return await self._catalog.run(spec.tool_id, call)
        except TimeoutError:
            return ToolOutcome("error", f"{spec.tool_id} did not end within {spec.timeout_s:.0f} s.")
        except Exception as error:  # noqa: BLE001 - the tool-call edge
            # A tool that raises is told to the model, which can do something about it.
            _log.exception("tool_raised", tool_id=spec.tool_id, call_id=call.call_id)
            return ToolOutcome("error", f"{spec.tool_id} failed: {type(error).__name__}: {error}")

    def _build_writing(
        self,
        turn: OpenTurn,
        pending: PendingCall,
        place: RoundPlace,
        result: ToolResultBody,
        outcome: ToolOutcome | Stopped | None,
    ) -> Writing:
        call_id = pending.block.call_id or CallId("")
        records = outcome.records if isinstance(outcome, ToolOutcome) else ()
        drafts = [_draft_result(place, call_id, result)]
        drafts += [place.draft(record.type, record.ref, record.body, call_id=call_id) for record in records]
        events: list[AnyEvent] = [step_event(build_ended_step(build_started_step(pending.block, pending.body), result))]
        external = [artifact for artifact in result.artifacts if artifact.visibility == "external"]
        if external:
            events.append(ChatFiles(files=turn.file_views(external)))
        events += [ChatPlan(plan=record.body.plan) for record in records if isinstance(record.body, PlanBody)]
        change = effect_change(call_id, pending.body, self._effect(pending.body), _EFFECT_STATES[result.status])
        return Writing(
            drafts=tuple(drafts),
            effects=(change,),
            artifacts=result.artifacts,
            after=tuple((event, place.round) for event in events),
        )

    def _effect(self, call: ToolCallBody) -> Effect:
        spec = next((spec for spec in self._catalog.specs if spec.tool_id == call.tool_id), None)
        return spec.effect if spec else Effect.PURE


def effect_change(call_id: CallId, call: ToolCallBody, effect: Effect, state: EffectState) -> EffectChange:
    """A row of the effect ledger for a call."""
    canonical = json.dumps([call.tool_id, call.params], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return EffectChange(call_id, call.tool_id, hashlib.sha256(canonical.encode()).hexdigest(), effect, state)


def _draft_result(place: RoundPlace, call_id: CallId, result: ToolResultBody) -> BlockDraft:
    return place.draft(BlockType.TOOL_RESULT, result_ref(place.turn_id, call_id), result, call_id=call_id)


def _result(call: ToolCallBody, outcome: ToolOutcome | Stopped) -> ToolResultBody:
    if isinstance(outcome, Stopped):
        text = "The call was cancelled because the person said something that may change the work."
        return ToolResultBody(tool_id=call.tool_id, status="cancelled", text=text)
    return ToolResultBody(
        tool_id=call.tool_id,
        status=outcome.status,
        text=outcome.text,
        artifacts=outcome.artifacts,
        data=outcome.data,
    )


def _failed(call: ToolCallBody, why: str) -> ToolResultBody:
    return ToolResultBody(tool_id=call.tool_id, status="error", text=why)


def _ambiguous(call: ToolCallBody) -> ToolResultBody:
    text = (
        "The worker died during this call. Nobody knows whether it took effect; it was not repeated. "
        "Find out before you call it again."
    )
    return ToolResultBody(tool_id=call.tool_id, status="ambiguous", text=text)


def step_event(view: StepView) -> ChatStep:
    """The event that tells of a step as it stands now."""
    return ChatStep(
        step=view.step,
        status=view.status,
        title=view.title,
        tool_id=view.tool_id,
        call_id=view.call_id,
        params=view.params,
        result_preview=view.result_preview,
        duration_ms=view.duration_ms,
        error=view.error,
    )
