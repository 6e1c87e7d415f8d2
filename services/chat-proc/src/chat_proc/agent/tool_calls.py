"""Runs one tool call to its end, even if it fails, and builds what is written to the timeline and sent to clients.

A result that is too long for the model is stored as a file, and its beginning is shown.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Literal

import structlog
from pydantic import BaseModel

from chat_proc.agent.approving import describe_call
from chat_proc.agent.authored.models import ToolModels
from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.kit import LoopDependencies, TurnKit, TurnLimits
from chat_proc.agent.limits import reached_cap
from chat_proc.catalog.call_policy import NeedsApproval, Rejected, report_refusal
from chat_proc.catalog.tool import (
    PREVIEW_CHARS,
    CallDetached,
    CallPostponed,
    Record,
    ToolCall,
    ToolContext,
    ToolOutcome,
    ToolRaised,
    ToolSpec,
)
from chat_proc.turn.leased import CommitContent, LeasedTurn
from everturn.core.cancellation import Stopped, run_until
from everturn.core.errors import EverturnError, Invalid, Unavailable
from everturn.core.ids import ArtifactId, CallId, make_id
from everturn.core.metrics import NO_TOOL, TOOL_CALLS, TOOL_SECONDS
from everturn.core.refs import result_ref
from everturn.core.tracing import Attributes
from everturn.events.model import AnyEvent, ChatFiles, ChatPlan
from everturn.events.turn_view import build_ended_step, build_started_step, build_step_event
from everturn.files.model import Artifact, ArtifactKind, Rn, object_key
from everturn.files.objects import Objects
from everturn.timeline.blocks import (
    BlockDraft,
    BlockType,
    CheckoutBody,
    PlanBody,
    StoredText,
    ToolCallBody,
    ToolResultBody,
)
from everturn.timeline.progress import PendingCall
from everturn.timeline.rendering import build_preview
from everturn.turns.model import Effect, EffectChange, EffectState, Lease, UsageEvent, hash_arguments

_log = structlog.get_logger(__name__)

MAX_STORED_BYTES = 10 * 1024 * 1024
"""Size limit of one result; the rest is lost, and the preview says so."""
SAVE_TIMEOUT_S = 30.0
_NOT_STORED = "\n(The rest could not be stored and is lost: call the tool again for a smaller part.)"

_EFFECT_STATES = {
    "ok": EffectState.COMMITTED,
    "error": EffectState.FAILED,
    "cancelled": EffectState.FAILED,
    "ambiguous": EffectState.AMBIGUOUS,
}
MAX_ERROR_CHARS = 2_000
"""Limit of an exception's text; a tool with a longer message returns an outcome."""
INBOX_RETRY_S = 1.0
MAX_ON_LOOP_CHARS = 20_000
"""A longer result is searched for secrets in a thread."""
STOP_GRACE_S = 4.0
"""How long a stopped tool has to return its partial work: 2 s for its sandbox, the rest for storing."""
_APPROVAL_MISSING = (
    "The call was not made: it now needs a person's approval, because of what earlier calls in this reply have "
    "read. Make it again in a separate reply to request the approval."
)
_ONLY_CONNECTED = (
    "The call was not made: it needs a person's approval, and connecting an account did not approve it. Make it again "
    "to request the approval."
)
_NOT_DESCRIBED = (
    "The call was not made: a person has to approve it, and what it would do could not be determined. Make it again."
)
_STOPPED = "The call was cancelled because a new message from the user may change the work."


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The body for the timeline, and the row that its object needs, if it has one. Of a long result the object store
    holds the whole text, and the block a preview."""

    body: ToolResultBody
    rows: tuple[Artifact, ...] = ()


class ResultStore:
    """Stores results that are longer than a tool's limit.

    The object's key is the hash of its content, and its row is written by the commit that writes the block. If that
    commit is rejected, because another worker took over, a repeated call with the same result reuses the object; an
    object without a row is deleted when the conversation is erased, like the files of a rejected commit.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def keep(self, turn: LeasedTurn, call_id: CallId, body: ToolResultBody, cap: int) -> StoredResult:
        """The same result with a text of about `cap` characters at most."""
        if len(body.text) <= cap:
            return StoredResult(body)
        ref = result_ref(turn.turn_id, call_id)
        data, kept, digest = await asyncio.to_thread(_encode, body.text)
        preview = build_preview(kept, ref, cap) + _describe_loss(body.text, kept)
        row = _build_row(turn, call_id, data, digest)
        try:
            async with asyncio.timeout(SAVE_TIMEOUT_S):
                await self._objects.save(row.object_key, data)
        except (EverturnError, TimeoutError) as error:
            # The tool has done its work: a partial result is better than none.
            _log.warning("Could not store the full result", call_id=call_id, error=str(error))
            return StoredResult(body.model_copy(update={"text": body.text[:cap] + _NOT_STORED}))
        whole = StoredText(object_key=row.object_key, sha256=row.sha256, chars=len(kept), bytes=len(data))
        return StoredResult(body.model_copy(update={"text": preview, "whole": whole}), (row,))


def _encode(text: str) -> tuple[bytes, str, str]:
    """At most MAX_STORED_BYTES of UTF-8, cut between characters, the same as text, and its SHA-256. A lone surrogate
    becomes a question mark."""
    data = text.encode("utf-8", errors="replace")
    if len(data) > MAX_STORED_BYTES:
        data = data[:MAX_STORED_BYTES].decode("utf-8", errors="ignore").encode()
    return data, data.decode(), hashlib.sha256(data).hexdigest()


def _describe_loss(text: str, kept: str) -> str:
    if len(kept) == len(text):
        return ""
    return f"\n(The result had {len(text)} characters. Only the first {len(kept)} are stored; the others are lost.)"


def _build_row(turn: LeasedTurn, call_id: CallId, data: bytes, digest: str) -> Artifact:
    who, conversation_id = turn.lease.principal, turn.lease.conversation_id
    born_ms = int(datetime.fromisoformat(turn.now()).timestamp() * 1000)
    entropy = hashlib.sha256(f"{call_id}\nresult".encode()).digest()[:10]
    rn = Rn(
        tenant=who.tenant,
        project=who.project,
        stage="agent",
        user_id=who.user_id,
        conversation_id=conversation_id,
        turn_id=turn.turn_id,
        role=ArtifactKind.RESULT.value,
        path=f"{call_id}.txt",
    )
    return Artifact(
        id=ArtifactId(make_id("art", born_ms, entropy)),
        turn_id=turn.turn_id,
        ref=result_ref(turn.turn_id, call_id),
        rn=str(rn),
        kind=ArtifactKind.RESULT,
        filename=f"{call_id}.txt",
        path=f"{turn.turn_id}/results/{call_id}.txt",
        mime="text/plain",
        size=len(data),
        sha256=digest,
        object_key=object_key(conversation_id, digest),
        visibility="internal",
        verdict="not scanned",
    )


@dataclass(frozen=True, slots=True)
class _NoOutcome:
    """The call ended without a result."""

    why: str


@dataclass(frozen=True, slots=True)
class _CutShort:
    """The call was asked to end early, and returned what it had."""

    outcome: ToolOutcome


class Wait(Enum):
    """What a turn does whose next call has no result yet."""

    PARKED = "parked"
    """It waits without a worker, for a person or for a call that goes on without it."""
    POSTPONED = "postponed"
    """It goes back into the queue: an outage hides what the call does."""


_Outcome = ToolOutcome | Stopped | _NoOutcome | _CutShort


class LiveCall:
    """What a call of a round may do to its turn while it runs. Implements LiveTurn."""

    def __init__(self, turn: LeasedTurn, round_number: int, limits: TurnLimits) -> None:
        self._turn = turn
        self._round = round_number
        self._limits = limits

    @property
    def lease(self) -> Lease:
        return self._turn.lease

    def lease_age_s(self) -> float:
        return self._turn.lease_age_s()

    def emit(self, data: AnyEvent) -> None:
        self._turn.emit(data, self._round)

    def record_usage(self, usage: UsageEvent) -> None:
        self._turn.record_usage(usage)

    def explain_cap(self) -> str:
        cap = reached_cap(self._limits, self._turn.spent)
        return "" if cap is None else f"The turn has reached {cap}."

    def keep_exchange(self, run: str, number: int, size: int, build: Callable[[], bytes]) -> None:
        self._turn.manifests.keep_exchange(run, number, size, build)


class ToolRunner:
    """The only place where a tool's exception becomes a result."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._build_models = partial(ToolModels, kit, parts)
        self._limits = kit.limits
        self._catalog = kit.catalog
        self._policy = kit.policy
        self._results = ResultStore(parts.objects)
        self._failpoints = parts.failpoints
        self._stragglers = parts.stragglers
        self._redactor = parts.redactor
        self._monotonic = parts.monotonic
        self._tracing = parts.tracing

    async def run(
        self, turn: LeasedTurn, pending: PendingCall, context: RoundContext, *, resumed: bool, approved: bool = False
    ) -> CommitContent | Wait:
        """Run a pending call that was `approved` by a person or needs no approval. A `resumed` one may have begun
        before: it is repeated only if that is safe, and not if its tool needs approval now but was not approved
        then."""
        started = self._monotonic()
        label = self._label(pending.body)
        with self._tracing.span(f"execute_tool {label}", _describe_call(turn, pending, label)) as span:
            outcome = await self._find_outcome(turn, pending, resumed=resumed, approved=approved)
            if isinstance(outcome, Wait):
                span.note({"everturn.tool.status": "detached" if outcome is Wait.PARKED else "postponed"})
                return outcome
            duration_s = self._monotonic() - started
            if isinstance(outcome, ToolOutcome) and outcome.duration_ms is not None:
                duration_s = outcome.duration_ms / 1000
            effect = self._find_effect(pending.body, resumed=resumed)
            result = _build_result(pending.body, outcome, effect, int(duration_s * 1000))
            span.note({"everturn.tool.status": result.status})
            if result.status in ("error", "ambiguous"):
                span.fail(result.status)
        is_long = len(result.text) > MAX_ON_LOOP_CHARS
        result = await asyncio.to_thread(self._redact, result) if is_long else self._redact(result)
        TOOL_CALLS.labels(label, result.status).inc()
        TOOL_SECONDS.labels(label, result.status).observe(duration_s)
        kept = await self._results.keep(turn, pending.block.call_id or CallId(""), result, self._cap(pending.body))
        content = self._build_content(turn, pending, context.at(turn.now()), kept.body, outcome)
        return content.plus(CommitContent(artifacts=kept.rows))

    def runs_beside(self, pending: PendingCall) -> bool:
        """Whether a call may run beside others: it neither writes files nor changes what the model sees."""
        spec = self._catalog.try_spec(pending.body.tool_id)
        return spec is not None and spec.strategy in ("exploration", "unknown")

    def may_be_irreversible(self, pending: PendingCall) -> bool:
        """Whether a call must not be repeated. A call of a tool that this worker lacks counts as irreversible."""
        return self._find_effect(pending.body, resumed=True) is Effect.IRREVERSIBLE

    def can_detach(self, pending: PendingCall) -> bool:
        """Whether a call may have gone on without its turn."""
        spec = self._catalog.try_spec(pending.body.tool_id)
        return spec is not None and spec.can_detach(pending.body.params)

    def has_detaching_tool(self, pending: PendingCall) -> bool:
        """Whether some calls of its tool may go on without their turn. Then all of them run alone on every worker."""
        spec = self._catalog.try_spec(pending.body.tool_id)
        return spec is not None and spec.may_detach

    def give_up(self, turn: LeasedTurn, pending: PendingCall, context: RoundContext) -> CommitContent:
        """Settle a pending call of a turn that ends because its workers died, perhaps in this call."""
        lost = _NoOutcome("The worker stopped during this call.")
        result = _build_result(pending.body, lost, self._find_effect(pending.body, resumed=True), 0)
        TOOL_CALLS.labels(self._label(pending.body), result.status).inc()
        return self._build_content(turn, pending, context, result, lost)

    def skip(self, turn: LeasedTurn, pending: PendingCall, context: RoundContext, why: str) -> CommitContent:
        """Settle a pending call without running it."""
        result = ToolResultBody(tool_id=pending.body.tool_id, status="cancelled", text=why)
        TOOL_CALLS.labels(self._label(pending.body), result.status).inc()
        return self._build_content(turn, pending, context, result, Stopped())

    async def _find_outcome(
        self, turn: LeasedTurn, pending: PendingCall, *, resumed: bool, approved: bool
    ) -> _Outcome | Wait:
        try:
            spec = self._catalog.spec(pending.body.tool_id)
            params = self._catalog.check_params(spec.tool_id, pending.body.params)
            if resumed and spec.find_effect(pending.body.params) is Effect.IRREVERSIBLE:
                return _NoOutcome("The worker stopped during this call.")
            can_detach = spec.can_detach(pending.body.params)
            review = partial(self._policy.review, spec, pending.body.params, turn.call_context)
            try:
                verdict = await (turn.retry(review) if can_detach else review())
            except Unavailable as error:
                if can_detach:
                    # It may have been made already, and go on. It is reviewed again when the turn is claimed again.
                    return Wait.POSTPONED
                if resumed:
                    why = f"The worker stopped during this call, which can't be repeated now: {error}"
                    return _NoOutcome(why[:MAX_ERROR_CHARS])
                return ToolOutcome("error", f"The call was not made: {error}")
            unasked = isinstance(verdict, NeedsApproval) and not approved
            if resumed and unasked:
                return _NoOutcome("The worker stopped during this call.")
            if isinstance(verdict, Rejected) or unasked:
                missing = _ONLY_CONNECTED if _was_for_an_account(turn, pending) else _APPROVAL_MISSING
                why = verdict.why if isinstance(verdict, Rejected) else missing
                if unasked and spec.describe_call is not None and not self._was_asked(turn, pending):
                    call_id = pending.block.call_id or CallId("")
                    described = await describe_call(self._catalog, spec, turn, call_id, pending.body)
                    why = described if isinstance(described, str) else _NOT_DESCRIBED
                report_refusal(spec, turn.call_context, why)
                return ToolOutcome("error", why)
            return await self._call(turn, spec, pending, params)
        except Invalid as gone:
            # The call was possible when it was decided, but not here: workers can have different tools and profiles.
            lost = "The worker stopped during this call, and this worker"
            if not resumed:
                return ToolOutcome("error", gone.detail)
            if self._catalog.try_spec(pending.body.tool_id) is None:
                return _NoOutcome(f"{lost} lacks its tool.")
            return _NoOutcome(f"{lost} can't repeat it. {gone.detail}"[:MAX_ERROR_CHARS])

    async def _call(self, turn: LeasedTurn, spec: ToolSpec, pending: PendingCall, params: BaseModel) -> _Outcome | Wait:
        call = self._build_call(turn, pending, params)
        name = f"{spec.tool_id} {call.call_id}"
        stop, work = _wait_for_stop(turn, spec, call.stop), self._bounded(turn, spec, call)
        ran = await run_until(stop, work, stragglers=self._stragglers, name=name)
        if isinstance(ran, Stopped):
            return ran.why if isinstance(ran.why, _NoOutcome) else ran
        if call.stop.is_set() and isinstance(ran.value, ToolOutcome) and ran.value.status == "error":
            return _CutShort(ran.value)
        return ran.value

    def _build_call(self, turn: LeasedTurn, pending: PendingCall, params: BaseModel) -> ToolCall:
        context = ToolContext(
            principal=turn.lease.principal,
            conversation_id=turn.lease.conversation_id,
            turn_id=turn.turn_id,
            round=pending.block.round,
            blocks=turn.blocks,
            now=turn.now(),
            pool=turn.pool,
            live=LiveCall(turn, pending.block.round, self._limits),
            earlier=turn.call_context.earlier,
            skills=turn.skills,
            models=self._build_models(turn, pending.block.round),
        )
        question = turn.progress.questions.get(pending.block.call_id or CallId(""))
        approved = question.request.details_digest if question else ""
        return ToolCall(pending.block.call_id or CallId(""), params, pending.code, context, approved=approved)

    def _was_asked(self, turn: LeasedTurn, pending: PendingCall) -> bool:
        return (pending.block.call_id or CallId("")) in turn.progress.questions

    async def _bounded(self, turn: LeasedTurn, spec: ToolSpec, call: ToolCall) -> ToolOutcome | _NoOutcome | Wait:
        self._failpoints.hit("turn.in_tool")
        try:
            with turn.activity.open_call(spec.tool_id):
                return await self._catalog.run(spec.tool_id, call)
        except CallDetached:
            return Wait.PARKED
        except CallPostponed as postponed:
            _log.warning("Postponed a call", tool_id=spec.tool_id, call_id=call.call_id, why=str(postponed.__cause__))
            return Wait.POSTPONED
        except ToolRaised as error:
            _log.error("Tool raised an exception", tool_id=spec.tool_id, call_id=call.call_id, error=str(error))
            return _NoOutcome(f"{spec.tool_id} failed: {error}"[:MAX_ERROR_CHARS])
        except Exception as error:  # noqa: BLE001 - the tool-call edge
            # The exception is reported to the model, which can react to it.
            _log.exception("Tool raised an exception", tool_id=spec.tool_id, call_id=call.call_id)
            return _NoOutcome(f"{spec.tool_id} failed: {type(error).__name__}: {error}"[:MAX_ERROR_CHARS])

    def _build_content(
        self,
        turn: LeasedTurn,
        pending: PendingCall,
        context: RoundContext,
        result: ToolResultBody,
        outcome: _Outcome,
    ) -> CommitContent:
        call_id = pending.block.call_id or CallId("")
        records = _records_of(outcome)
        drafts = [_draft_result(context, call_id, result)]
        drafts += [
            context.draft(record.type, record.ref, record.body, call_id=record.call_id or call_id) for record in records
        ]
        ended = build_ended_step(build_started_step(pending.block, pending.body, pending.code), result)
        events: list[AnyEvent] = [build_step_event(ended)]
        external = [artifact for artifact in result.artifacts if artifact.visibility == "external"]
        if external:
            events.append(ChatFiles(files=turn.show_files(external)))
        events += [ChatPlan(plan=record.body.plan) for record in records if isinstance(record.body, PlanBody)]
        # Only its state is new: the effect was written when the call was decided.
        effect = self._find_effect(pending.body, resumed=False)
        change = effect_change(call_id, pending.body, effect, _EFFECT_STATES[result.status])
        return CommitContent(
            drafts=tuple(drafts),
            effects=(change,),
            artifacts=result.artifacts + _checked_out(records),
            after=tuple((event, context.round) for event in events),
        )

    def _redact(self, result: ToolResultBody) -> ToolResultBody:
        hidden = {"text": self._redactor.redact(result.text), "data": self._redactor.redact_value(result.data)}
        return result.model_copy(update=hidden)

    def _find_effect(self, call: ToolCallBody, *, resumed: bool) -> Effect:
        """The effect of a call. Without its tool nothing is done, but a `resumed` call may have begun elsewhere."""
        spec = self._catalog.try_spec(call.tool_id)
        if spec is not None:
            return spec.find_effect(call.params)
        return Effect.IRREVERSIBLE if resumed else Effect.PURE

    def _cap(self, call: ToolCallBody) -> int:
        spec = self._catalog.try_spec(call.tool_id)
        return spec.result_chars if spec else PREVIEW_CHARS

    def _label(self, call: ToolCallBody) -> str:
        """The tool's id as a label; NO_TOOL for a tool that only another worker offers."""
        return call.tool_id if self._catalog.try_spec(call.tool_id) else NO_TOOL


async def _wait_for_stop(turn: LeasedTurn, spec: ToolSpec, stop: asyncio.Event) -> _NoOutcome | None:
    """Return when the call has to end: with a reason if it timed out, with None if a person stopped it.

    A tool that returns partial work is first signalled to stop, through `stop`, and gets STOP_GRACE_S to return it.
    An inbox that can't be read stops no call: the call has begun, so its result must not be lost.
    """
    limit = asyncio.timeout(spec.timeout_s)
    try:
        async with limit:
            if spec.cancellable:
                await _wait_for_control(turn)
                if spec.returns_partial_work:
                    stop.set()
                    await asyncio.sleep(STOP_GRACE_S)
                return None
            await asyncio.Event().wait()
    except TimeoutError:
        if not limit.expired():
            raise
    return _NoOutcome(f"{spec.tool_id} did not finish within {spec.timeout_s:g} s.")


async def _wait_for_control(turn: LeasedTurn) -> None:
    while True:
        try:
            return await turn.inbox.wait_for_control()
        except Unavailable as error:
            _log.warning("Could not read the inbox while a tool runs", turn_id=turn.turn_id, error=str(error))
        await asyncio.sleep(INBOX_RETRY_S)


def _was_for_an_account(turn: LeasedTurn, pending: PendingCall) -> bool:
    """Whether a person was asked to connect an account for the call, and nothing else."""
    question = turn.progress.questions.get(pending.block.call_id or CallId(""))
    return question is not None and bool(question.request.connect_url)


def _describe_call(turn: LeasedTurn, pending: PendingCall, label: str) -> Attributes:
    """Span attributes of a call by OpenTelemetry's conventions for generative AI, without its parameters or its
    result."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": label,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": pending.block.call_id or "",
        "gen_ai.conversation.id": turn.lease.conversation_id,
        "everturn.turn.id": turn.turn_id,
        "everturn.round": pending.block.round,
    }


def _records_of(outcome: _Outcome) -> tuple[Record, ...]:
    match outcome:
        case ToolOutcome(records=records) | _CutShort(outcome=ToolOutcome(records=records)):
            return records
        case _:
            return ()


def _checked_out(records: Sequence[Record]) -> tuple[Artifact, ...]:
    """The rows of a checkout: the copies, and the files that it removed from the workspace."""
    bodies = [record.body for record in records if isinstance(record.body, CheckoutBody)]
    return tuple(artifact for body in bodies for artifact in (*body.artifacts, *body.removed))


def effect_change(
    call_id: CallId, call: ToolCallBody, effect: Effect, state: EffectState = EffectState.INTENDED
) -> EffectChange:
    """A row of the effect ledger for a call."""
    return EffectChange(call_id, call.tool_id, hash_arguments(call.tool_id, call.params), effect, state)


def _draft_result(context: RoundContext, call_id: CallId, result: ToolResultBody) -> BlockDraft:
    return context.draft(BlockType.TOOL_RESULT, result_ref(context.turn_id, call_id), result, call_id=call_id)


def _build_result(call: ToolCallBody, outcome: _Outcome, effect: Effect, duration_ms: int) -> ToolResultBody:
    match outcome:
        case ToolOutcome(status=status):
            return _keep_outcome(call, outcome, status, duration_ms)
        case _CutShort(outcome=given):
            kept = replace(given, text=f"{_STOPPED} Its partial result follows.\n{given.text}")
            return _keep_outcome(call, kept, "cancelled", duration_ms)
        case Stopped():
            status, why = "cancelled", _STOPPED
        case _NoOutcome(why=why):
            status = "error"
    if effect is Effect.IRREVERSIBLE:
        status = "ambiguous"
        why += " It is unknown whether the call took effect, and it is not repeated. Find out before you make it again."
    return ToolResultBody(tool_id=call.tool_id, status=status, text=why, duration_ms=duration_ms)


def _keep_outcome(
    call: ToolCallBody, outcome: ToolOutcome, status: Literal["ok", "error", "cancelled"], duration_ms: int
) -> ToolResultBody:
    return ToolResultBody(
        tool_id=call.tool_id,
        status=status,
        text=outcome.text,
        artifacts=outcome.artifacts,
        data=outcome.data,
        duration_ms=duration_ms,
        untrusted=outcome.untrusted,
    )
