"""Asks a person to approve a call, and decides: run it, skip it, or wait."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, cast

from chat_proc.agent.drafting import RoundContext
from chat_proc.agent.kit import LoopDependencies, TurnKit
from chat_proc.agent.signal_folding import fold_signals
from chat_proc.catalog.call_policy import NeedsApproval, Rejected
from chat_proc.catalog.tool import MAX_DETAILS_CHARS, CallDetails, Proposal, ToolRegistry, ToolSpec
from chat_proc.turn.leased import CommitContent, LeasedTurn
from everturn.core.cancellation import Ran, keep_cancellation, run_until
from everturn.core.clock import iso
from everturn.core.errors import EverturnError
from everturn.core.ids import CallId
from everturn.core.metrics import CALLS_REVIEWED
from everturn.core.refs import round_ref
from everturn.events.turn_view import bound_params, build_approval_event, build_pending_approval, build_settled_approval
from everturn.mcp_connections.connections import REQUEST_S
from everturn.timeline.blocks import ApprovalOutcomeBody, ApprovalRequestBody, BlockDraft, BlockType, ToolCallBody
from everturn.timeline.progress import PendingCall, Question
from everturn.turns.model import Approval, ApprovalRequest, ApprovalState, approval_id_of, hash_arguments

MAX_SHOWN_BYTES = 16 * 1024
"""Size limit of the shown parameters as JSON. Longer ones are shown shortened and marked as cut."""

DESCRIBE_S = 180.0
"""For what a call would do: fetching a branch may take two minutes. The call is not shown before that."""

_OUTCOMES: dict[ApprovalState, Literal["approved", "denied", "expired", "withdrawn"]] = {
    ApprovalState.APPROVED: "approved",
    ApprovalState.DENIED: "denied",
    ApprovalState.EXPIRED: "expired",
    ApprovalState.WITHDRAWN: "withdrawn",
}
NOT_STARTED = "The call was not started because a new message from the user may change the work."
_DENIED = "The user denied this call, so it was not made. Do not repeat it unless the user asks for it."
_CONNECT = "To go on, connect your account at {title}. {why}"
_EXPIRED = "The user was asked to approve this call and did not answer in time, so it was not made."


@dataclass(frozen=True, slots=True)
class MayRun:
    """A person approved the call."""


@dataclass(frozen=True, slots=True)
class MayNot:
    """The call is not made; `settling` is committed together with the result, which states `why`."""

    settling: CommitContent
    why: str


@dataclass(frozen=True, slots=True)
class MustWait:
    """The question is not answered yet."""


Verdict = MayRun | MayNot | MustWait


class ApprovalGate:
    """Checks every call of the loop. Keeps no state of turns: blocks and rows record what was asked."""

    def __init__(self, kit: TurnKit, parts: LoopDependencies) -> None:
        self._catalog = kit.catalog
        self._policy = kit.policy
        self._timeout_s = kit.approval_timeout_s
        self._redactor = parts.redactor

    async def draft_questions(
        self, turn: LeasedTurn, calls: Mapping[CallId, ToolCallBody], context: RoundContext
    ) -> CommitContent:
        """Draft the questions for all calls that need approval. They belong in the commit that decides on the calls, so
        that such a call is never on the timeline without its question."""
        # Side by side, because each can wait for an authorization server. A group that ends its tasks after a failure
        # loses a cancellation.
        with keep_cancellation():
            try:
                async with asyncio.TaskGroup() as tasks:
                    reviews = {id: tasks.create_task(self._review(turn, id, call)) for id, call in calls.items()}
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from failures
        asked_about = {call_id: ask for call_id, review in reviews.items() if (ask := review.result()) is not None}
        if not asked_about:
            return CommitContent()
        expires_at = await turn.load_approval_deadline(timeout_s=self._timeout_s)
        connect_by = expires_at
        if self._timeout_s > REQUEST_S and any(ask.connect_url for ask in asked_about.values()):
            connect_by = expires_at - timedelta(seconds=self._timeout_s - REQUEST_S)
        requests = [
            ApprovalRequest(
                id=approval_id_of(call_id),
                call_id=call_id,
                tool_id=calls[call_id].tool_id,
                args_hash=hash_arguments(calls[call_id].tool_id, calls[call_id].params),
                expires_at=connect_by if asked_about[call_id].connect_url else expires_at,
            )
            for call_id in asked_about
        ]
        drafts = tuple(
            self._draft_request(context, request, calls[request.call_id], asked_about[request.call_id])
            for request in requests
        )
        after = tuple(
            (build_approval_event(build_pending_approval(draft, draft.body)), context.round)
            for draft in drafts
            if isinstance(draft.body, ApprovalRequestBody)
        )
        return CommitContent(drafts=drafts, requests=tuple(requests), after=after)

    async def ask(self, turn: LeasedTurn, calls: Sequence[PendingCall], context: RoundContext) -> None:
        """Ask about calls that have not begun, and were decided on by a worker by whose rules their tools did not need
        approval."""
        asked = turn.progress.questions
        new = {_call_id(call): call.body for call in calls if _call_id(call) not in asked}
        content = await self.draft_questions(turn, new, context)
        if content.requests:
            await turn.commit(content)

    def is_approved(self, turn: LeasedTurn, call: PendingCall) -> bool:
        """Whether a person has approved this call itself, and not only connected an account for it."""
        return not turn.progress.questions[_call_id(call)].request.connect_url

    def is_asked(self, turn: LeasedTurn, call: PendingCall) -> bool:
        """Whether a person was asked about this call."""
        return call.block.call_id in turn.progress.questions

    async def settle(self, turn: LeasedTurn, calls: Sequence[PendingCall], context: RoundContext) -> frozenset[CallId]:
        """Record the new outcomes of questions about these calls; returns the calls concerned.

        None of them has begun: a call begins only after its outcome is on the timeline.
        """
        questions = turn.progress.questions
        still_open = [
            (call, questions[_call_id(call)])
            for call in calls
            if _call_id(call) in questions and questions[_call_id(call)].outcome is None
        ]
        if not still_open:
            return frozenset()
        rows = {row.id: row for row in await turn.load_approvals()}
        answered = [(call, asked, rows[asked.request.approval_id]) for call, asked in still_open]
        answered = [each for each in answered if each[2].state is not ApprovalState.PENDING]
        content = CommitContent()
        for call, question, row in answered:
            content = content.plus(await self._receipt(turn, row, context)).plus(_settle(call, question, context, row))
        if answered:
            await turn.commit(content)
        return frozenset(_call_id(call) for call, _, _ in answered)

    def judge(self, turn: LeasedTurn, call: PendingCall, context: RoundContext, *, stopped: bool, why: str) -> Verdict:
        """Decide on a call that a person was asked about; `stopped` if a steer or a cancel is pending. Then an approved
        call is not made because of `why`; empty for one that must not be dropped."""
        question = turn.progress.questions[_call_id(call)]
        outcome = question.outcome
        if question.request.args_hash != hash_arguments(call.body.tool_id, call.body.params):
            return MayNot(CommitContent(), "This is not the call that a person approved. It was not made.")
        if outcome is None:
            return MayNot(_settle(call, question, context), NOT_STARTED) if stopped else MustWait()
        match outcome.state:
            case "approved":
                return MayNot(CommitContent(), why) if stopped and why else MayRun()
            case "denied":
                reason = f" The reason given: {outcome.reason}" if outcome.reason.strip() else ""
                return MayNot(CommitContent(), f"{_DENIED}{reason}")
            case "expired":
                return MayNot(CommitContent(), _EXPIRED)
            case "withdrawn":
                return MayNot(CommitContent(), NOT_STARTED)

    async def _receipt(self, turn: LeasedTurn, row: Approval, context: RoundContext) -> CommitContent:
        turn.inbox.ring()  # the row can be newer than the last read of the inbox
        signals = [signal for signal in await turn.inbox.load_unseen() if signal.id == row.signal_id]
        return fold_signals(signals, context, turn.show_files).content

    async def _review(self, turn: LeasedTurn, call_id: CallId, call: ToolCallBody) -> NeedsApproval | None:
        """The question, if a person has to approve the call or to connect an account for it. A call that the policy
        refuses is refused when it runs."""
        spec = self._catalog.try_spec(call.tool_id)
        if spec is None:
            return None
        verdict = await turn.retry(lambda: self._policy.review(spec, call.params, turn.call_context))
        if isinstance(verdict, Rejected):
            return None
        if (connector := spec.connector) is not None:
            owner = turn.lease.principal, turn.lease.conversation_id
            finding = turn.retry(lambda: connector.find_link(call_id, *owner))
            # A steer or a cancel ends the wait for an authorization server: the call is not made.
            ran = await run_until(turn.inbox.wait_for_control(), finding)
            if isinstance(ran, Ran) and (link := ran.value) is not None:
                CALLS_REVIEWED.labels(spec.tool_id, "asked").inc()
                return NeedsApproval(_CONNECT.format(title=link.title, why=link.why).strip(), connect_url=link.url)
        if verdict is None:
            return None
        if spec.describe_call is not None:
            # Without its details nobody is asked about the call, and it fails when it runs.
            if (details := await self._describe(turn, spec, call_id, call)) is None:
                return None
            verdict = replace(verdict, details=details)
        CALLS_REVIEWED.labels(spec.tool_id, "asked").inc()
        return verdict

    async def _describe(
        self, turn: LeasedTurn, spec: ToolSpec, call_id: CallId, call: ToolCallBody
    ) -> CallDetails | None:
        """None if the call can't be described, or if a steer or a cancel has ended that."""
        describing = describe_call(self._catalog, spec, turn, call_id, call)
        ran = await run_until(turn.inbox.wait_for_control(), describing)
        return ran.value if isinstance(ran, Ran) and isinstance(ran.value, CallDetails) else None

    def _draft_request(
        self, context: RoundContext, request: ApprovalRequest, call: ToolCallBody, ask: NeedsApproval
    ) -> BlockDraft:
        shown, cut = self._show(call.params)
        body = ApprovalRequestBody(
            approval_id=request.id,
            tool_id=request.tool_id,
            params=shown,
            args_hash=request.args_hash,
            expires_at=iso(request.expires_at),
            cut=cut,
            explanation=self._redactor.redact(ask.explanation),
            addresses=ask.addresses,
            connect_url=ask.connect_url,
            details=_bound_details(self._redactor.redact(ask.details.text)) if ask.details else "",
            details_digest=ask.details.digest if ask.details else "",
        )
        ref = round_ref(context.turn_id, context.round, f"approval.{request.call_id}")
        return context.draft(BlockType.APPROVAL_REQUEST, ref, body, call_id=request.call_id)

    def _show(self, params: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The parameters shown to a person, without secrets: all, or the short form that steps use; and whether they
        were cut."""
        shown = cast("dict[str, Any]", self._redactor.redact_value(params))
        if len(json.dumps(shown, ensure_ascii=False, default=str).encode(errors="replace")) <= MAX_SHOWN_BYTES:
            return shown, False
        return bound_params(shown), True


def _bound_details(text: str) -> str:
    return text if len(text) <= MAX_DETAILS_CHARS else f"{text[:MAX_DETAILS_CHARS]}\n(The rest is too long to show.)"


async def describe_call(
    catalog: ToolRegistry, spec: ToolSpec, turn: LeasedTurn, call_id: CallId, call: ToolCallBody
) -> CallDetails | str:
    """What a call would do, for the person who decides on it; or why it can't be made, for the model."""
    if spec.describe_call is None:
        raise RuntimeError(f"{spec.tool_id} does not describe its calls.")
    try:
        params = catalog.check_params(spec.tool_id, call.params)
        lease = turn.lease
        proposal = Proposal(call_id, params, lease.principal, lease.conversation_id, turn.turn_id)
        async with asyncio.timeout(DESCRIBE_S):
            return await spec.describe_call(proposal)
    except EverturnError as error:
        return error.detail
    except TimeoutError:
        return f"The call was not made: what it would do was not known within {DESCRIBE_S:g} s."


def _call_id(call: PendingCall) -> CallId:
    return call.block.call_id or CallId("")


def _settle(call: PendingCall, question: Question, context: RoundContext, row: Approval | None = None) -> CommitContent:
    """The block and the event of the outcome. Without a settled row the question is withdrawn."""
    asked = question.request
    body = ApprovalOutcomeBody(
        approval_id=asked.approval_id,
        state="withdrawn" if row is None else _OUTCOMES[row.state],
        reason=row.reason if row else "",
        signal_id=row.signal_id if row else None,
    )
    ref = round_ref(context.turn_id, context.round, f"approval.{call.block.call_id}.outcome")
    view = build_settled_approval(build_pending_approval(call.block, asked), body)
    return CommitContent(
        drafts=(context.draft(BlockType.APPROVAL_OUTCOME, ref, body, call_id=call.block.call_id),),
        withdrawn=(asked.approval_id,) if row is None else (),
        after=((build_approval_event(view), context.round),),
    )
