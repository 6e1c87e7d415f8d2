"""Approvals in memory; the platform's clock decides when they expire."""

from dataclasses import replace
from datetime import datetime, timedelta

from everturn.conversations.model import ConversationState
from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, CallId, ConversationId, TurnId
from everturn.timeline.turns import ANSWER_KINDS, CONTROL_KINDS, SignalKind, SignalState, TurnStatus
from everturn.turns.inbox import IncomingSignal, Receipt
from everturn.turns.model import Approval, ApprovalState, EffectState, Lease
from everturn_testing.in_memory_platform import MemoryPlatform, same_owner

_ANSWERS = {SignalKind.APPROVE: ApprovalState.APPROVED, SignalKind.DENY: ApprovalState.DENIED}


class MemoryApprovals:
    """Implements Approvals for the worker `owner`."""

    def __init__(self, platform: MemoryPlatform, *, owner: str = "worker-1") -> None:
        self._platform = platform
        self._owner = owner

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        return self._platform.clock.now() + timedelta(seconds=timeout_s)

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        turn = self._platform.turns.get(turn_id)
        if turn is None or not same_owner(turn.principal, principal):
            return ()
        return tuple(row.approval for row in self._platform.approvals.values() if row.turn_id == turn_id)

    async def try_park(self, lease: Lease) -> bool:
        row = self._platform.conversations.get(lease.conversation_id)
        turn = self._platform.open_turn(lease.conversation_id)
        if row is None or turn is None or row.fence != lease.fence:
            return False
        if turn.turn.status is TurnStatus.WAITING:
            return True
        if row.lease_owner != self._owner:
            return False
        asked = [each for each in self._platform.approvals.values() if each.turn_id == turn.turn.id]
        said = [each.signal for each in self._platform.signals.values() if each.signal.turn_id == turn.turn.id]
        urgent = [
            signal
            for signal in said
            if signal.state is SignalState.ACCEPTED and signal.kind in ANSWER_KINDS | CONTROL_KINDS
        ]
        asks = any(each.approval.state is ApprovalState.PENDING for each in asked)
        runs = [
            (self._find_state(key), row.run) for key, row in self._platform.detached.items() if key[0] == turn.turn.id
        ]
        goes_on = any(run.ended_as is None and run.task for state, run in runs if state in (None, EffectState.INTENDED))
        needs_turn = any(run.ended_as or not run.task for state, run in runs if state is EffectState.INTENDED)
        if urgent or needs_turn or not (asks or goes_on):
            return False
        self._platform.end_lease(row)
        row.state = ConversationState.WAITING if asks else ConversationState.RUNNING
        turn.turn = replace(turn.turn, status=TurnStatus.WAITING, attempt=0)
        return True

    def _find_state(self, key: tuple[TurnId, CallId]) -> EffectState | None:
        effect = self._platform.effects.get(key)
        return None if effect is None else effect.state


def wake_turn(platform: MemoryPlatform, conversation_id: ConversationId) -> bool:
    """Return the waiting turn to the queue; returns whether there was one."""
    turn = platform.open_turn(conversation_id)
    if turn is None or turn.turn.status is not TurnStatus.WAITING:
        return False
    turn.turn = replace(turn.turn, status=TurnStatus.QUEUED)
    platform.conversations[conversation_id].state = ConversationState.QUEUED
    return True


def answer_approval(
    platform: MemoryPlatform, conversation_id: ConversationId, signal: IncomingSignal, approval_id: ApprovalId
) -> Receipt:
    """Settle a question; returns a replayed receipt when the same answer was given before. Raises NotFound,
    Conflict."""
    row = platform.approvals.get(approval_id)
    if row is None or platform.turns[row.turn_id].turn.conversation_id != conversation_id:
        raise NotFound(approval_id)
    if signal.target_turn_id not in (None, row.turn_id):
        raise Conflict(f"{signal.target_turn_id} is not the turn that asks for this approval.")
    lane = platform.turns[row.turn_id].lane
    receipt = Receipt(conversation_id, row.turn_id, signal.signal_id, SignalState.ACCEPTED, ring=False, lane=lane)
    first = row.approval.signal_id
    if row.approval.state is _ANSWERS[signal.kind] and first is not None:
        return replace(receipt, signal_id=first, state=platform.signals[first].signal.state, replayed=True)
    if row.approval.state is not ApprovalState.PENDING:
        raise Conflict(f"This approval is {row.approval.state.value} already.")
    if row.expires_at <= platform.clock.now():
        raise Conflict("This approval has expired.")
    row.approval = replace(row.approval, state=_ANSWERS[signal.kind], signal_id=signal.signal_id, reason=signal.text)
    return replace(receipt, ring=wake_turn(platform, conversation_id))


def expire_approvals(platform: MemoryPlatform) -> tuple[ConversationId, ...]:
    """As the sweeper does: expires due questions of parked turns; returns the conversations that it woke."""
    woken: list[ConversationId] = []
    for row in platform.approvals.values():
        turn = platform.turns[row.turn_id].turn
        overdue = row.approval.state is ApprovalState.PENDING and row.expires_at <= platform.clock.now()
        if overdue and turn.status in (TurnStatus.WAITING, TurnStatus.QUEUED):
            row.approval = replace(row.approval, state=ApprovalState.EXPIRED)
            if wake_turn(platform, turn.conversation_id):
                woken.append(turn.conversation_id)
    return tuple(woken)
