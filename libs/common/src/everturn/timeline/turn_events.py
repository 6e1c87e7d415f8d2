"""The events that tell of stored values, built from the same parts as the views: folding them gives the views."""

from collections.abc import Iterable

from everturn.model.block_bodies import CompletionBody
from everturn.model.blocks import Block
from everturn.model.turns import Turn, TurnUsage
from everturn.timeline.view_parts import build_citation_view, build_file_view
from everturn.wire.events import (
    ChatApproval,
    ChatCitations,
    ChatComplete,
    ChatError,
    ChatFollowups,
    ChatSignal,
    ChatStart,
    ChatStep,
)
from everturn.wire.times import iso
from everturn.wire.views import ApprovalView, SignalView, StepView, TurnView


def build_start_event(turn: Turn, *, tenant: str, project: str) -> ChatStart:
    """The turn begins."""
    return ChatStart(
        turn_id=turn.id,
        ordinal=turn.ordinal,
        text=turn.request.text,
        attachments=tuple(build_file_view(item, tenant=tenant, project=project) for item in turn.request.attachments),
        created_at=iso(turn.created_at),
    )


def build_step_event(step: StepView) -> ChatStep:
    """A step as it is now. The round travels in the envelope, the program in the first event of its step only."""
    has_begun = step.status == "started"
    return ChatStep(
        step=step.step,
        status=step.status,
        title=step.title,
        tool_id=step.tool_id,
        call_id=step.call_id,
        params=step.params,
        code=step.code if has_begun else None,
        code_chars=step.code_chars if has_begun else None,
        result_preview=step.result_preview,
        duration_ms=step.duration_ms,
        error=step.error,
    )


def build_answer_events(blocks: Iterable[Block]) -> list[ChatCitations | ChatFollowups]:
    """What clients are told besides the text of the answers among these blocks: what they cite, and what may follow."""
    told: list[ChatCitations | ChatFollowups] = []
    for body in (block.body for block in blocks if isinstance(block.body, CompletionBody)):
        if body.citations:
            told.append(ChatCitations(sources=tuple(map(build_citation_view, body.citations))))
        if body.followups:
            told.append(ChatFollowups(items=body.followups))
    return told


def build_signal_event(signal: SignalView) -> ChatSignal:
    """A receipt as it is now."""
    return ChatSignal(
        signal_id=signal.signal_id,
        kind=signal.kind,
        state=signal.state,
        text=signal.text,
        attachments=signal.attachments,
        round=signal.round,
        promoted_to=signal.promoted_to,
        event=signal.event,
        approval_id=signal.approval_id,
    )


def build_approval_event(approval: ApprovalView) -> ChatApproval:
    """A question as it is now. The round travels in the envelope."""
    return ChatApproval(**approval.model_dump(exclude={"round"}))


def try_build_terminal_event(turn: TurnView) -> ChatComplete | ChatError | None:
    """The event that ends the turn, from its committed state; None while it is open."""
    usage, elapsed_ms = turn.usage or TurnUsage(), turn.elapsed_ms or 0
    if turn.error:
        return ChatError(problem=turn.error, rounds=turn.rounds, usage=usage, elapsed_ms=elapsed_ms)
    if turn.outcome is None:
        return None
    return ChatComplete(
        outcome=turn.outcome,
        cut_reason=turn.cut_reason,
        answer=turn.answer,
        followups=turn.followups,
        rounds=turn.rounds,
        usage=usage,
        elapsed_ms=elapsed_ms,
        sources_used=turn.sources_used,
    )
