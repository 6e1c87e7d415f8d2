"""Accepting messages and signals in memory."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from everturn.bundles.registry import DEFAULT_BUNDLE
from everturn.conversations.model import ConversationState
from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Lane, Principal, lane_of
from everturn.core.ids import ApprovalId, ConversationId, SignalId, TurnId
from everturn.files.model import Artifact, Upload, UploadScope, build_attachments
from everturn.queue.model import QUEUE_CAPS, QueueCaps, QueueCounts
from everturn.timeline.turns import (
    CONTROL_KINDS,
    RequestEvent,
    Signal,
    SignalKind,
    SignalState,
    Turn,
    TurnRequest,
    TurnStatus,
    ref_kind,
)
from everturn.turns.inbox import (
    BOUNDED_KINDS,
    FULL_TURN,
    LARGE_EDIT,
    LARGE_TURN,
    LARGE_WAITING,
    LAST_CANCELS,
    MAX_OPEN_SIGNALS,
    MAX_TURN_SIGNAL_BYTES,
    MAX_TURN_SIGNALS,
    TENANT_SHARE,
    UPLOAD_LIMIT,
    IdempotencyKey,
    InboxFull,
    IncomingMessage,
    IncomingSignal,
    KeyReused,
    Receipt,
    UnknownBundle,
    UploadTooLate,
    check_reason,
)
from everturn_testing.in_memory_platform import (
    ConversationRow,
    MemoryPlatform,
    SignalRow,
    TurnRow,
    UsedKey,
    build_request_events,
)
from everturn_testing.queue.queue import find_position
from everturn_testing.turns.approvals import answer_approval, wake_turn


class MemoryInbox:
    """Implements Inbox. A tenant's turns beyond `share` on a lane wait without a doorbell."""

    def __init__(self, platform: MemoryPlatform, *, share: int = TENANT_SHARE, caps: QueueCaps = QUEUE_CAPS) -> None:
        self._platform = platform
        self._share = share
        self._caps = caps

    async def load_now(self) -> datetime:
        return self._platform.clock.now()

    async def accept_message(
        self, principal: Principal, message: IncomingMessage, key: IdempotencyKey | None
    ) -> Receipt:
        if (replayed := self._replay(principal, key)) is not None:
            return replayed
        self._check_in_time(message.uploads)
        if message.create:
            self._check_queue(principal)
            row = ConversationRow(message.conversation_id, principal, message.bundle_id)
        else:
            row = self._platform.conversation(principal, message.conversation_id)
        if _is_idle(row):
            _check_bundle(message.bundle_id or row.bundle_id, message.open_bundles)
            self._check_target(row, message)
            self._platform.conversations[row.id] = row
            receipt = self._open_turn_of_message(row, principal, message)
        else:
            kind = message.kind or SignalKind.FOLLOWUP
            signal = IncomingSignal(message.signal_id, kind, message.text, message.uploads, message.target_turn_id)
            receipt = self._append_signal(row, principal, signal)
        return self._keep(principal, key, receipt)

    async def try_load_receipt(self, principal: Principal, key: IdempotencyKey) -> Receipt | None:
        return self._replay(principal, key)

    async def accept_signal(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        signal: IncomingSignal,
        key: IdempotencyKey | None,
    ) -> Receipt:
        check_reason(signal.kind, signal.text)
        if (replayed := self._replay(principal, key)) is not None:
            return replayed
        row = self._platform.conversation(principal, conversation_id)
        self._check_in_time(signal.uploads)
        if signal.approval_id is not None:
            return self._keep(principal, key, self._append_answer(row, signal, signal.approval_id))
        if signal.event is not None and signal.target_turn_id is None and _is_idle(row):
            return self._keep(principal, key, self._accept_event(row, principal, signal))
        return self._keep(principal, key, self._append_signal(row, principal, signal))

    async def load_signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> Signal:
        return self._signal(principal, conversation_id, signal_id).signal

    async def save_signal_text(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId, text: str
    ) -> Signal:
        row = self._signal(principal, conversation_id, signal_id)
        if row.signal.state is not SignalState.ACCEPTED:
            raise Conflict(f"The signal is {row.signal.state.value} already.")
        _check_no_answer(row.signal)
        check_reason(row.signal.kind, text)
        if row.signal.kind not in BOUNDED_KINDS and len(text.encode()) > len(row.signal.text.encode()):
            self._check_bytes(row.conversation_id, row.signal.turn_id, text, LARGE_EDIT, edited=signal_id)
        row.signal = replace(row.signal, text=text)
        self._platform.conversations[conversation_id].inbox_seq += 1
        return row.signal

    async def retract_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal:
        row = self._signal(principal, conversation_id, signal_id)
        if row.signal.state not in (SignalState.ACCEPTED, SignalState.RETRACTED):
            raise Conflict(f"The signal is {row.signal.state.value} already.")
        _check_no_answer(row.signal)
        if row.signal.kind is SignalKind.CANCEL and row.signal.state is SignalState.ACCEPTED:
            signals = [each.signal for each in self._platform.signals.values()]
            alike = [s for s in signals if s.turn_id == row.signal.turn_id and s.kind is SignalKind.CANCEL]
            if len(alike) > MAX_TURN_SIGNALS:
                raise Conflict(LAST_CANCELS)
        row.signal = replace(row.signal, state=SignalState.RETRACTED)
        self._platform.conversations[conversation_id].inbox_seq += 1
        return row.signal

    def _check_in_time(self, uploads: Sequence[Upload]) -> None:
        if uploads and self._platform.clock.now() - min(each.begun_at for each in uploads) > UPLOAD_LIMIT:
            raise UploadTooLate()

    def _check_target(self, row: ConversationRow, message: IncomingMessage) -> None:
        own = [turn.turn.id for turn in self._platform.turns_of(row.id)]
        if message.target_turn_id is not None and message.target_turn_id not in own:
            raise Conflict(f"{message.target_turn_id} is not a turn of this conversation.")

    def _open_turn_of_message(self, row: ConversationRow, principal: Principal, message: IncomingMessage) -> Receipt:
        attachments = build_attachments(message.uploads, UploadScope(principal, row.id, message.turn_id))
        row.artifacts.extend(attachments)
        request = TurnRequest(
            message.text,
            attachments,
            message.bundle_id or row.bundle_id,
            trace=message.trace,
            time_zone=message.time_zone,
        )
        return self._open_turn(row, principal, message.turn_id, request)

    def _accept_event(self, row: ConversationRow, principal: Principal, incoming: IncomingSignal) -> Receipt:
        if incoming.event is None or incoming.turn_id is None:
            raise Conflict("This conversation has no open turn.")
        scope = UploadScope(principal, row.id, incoming.turn_id, (incoming.event.kind, incoming.signal_id))
        attachments = build_attachments(incoming.uploads, scope)
        if incoming.event.reactive:
            _check_bundle(row.bundle_id, incoming.open_bundles)
            row.artifacts.extend(attachments)
            event = RequestEvent(incoming.signal_id, incoming.text, incoming.event, attachments)
            request = TurnRequest("", (), row.bundle_id, (event,), incoming.trace)
            return self._open_turn(row, principal, incoming.turn_id, request)
        if len(self._parked(row)) >= MAX_OPEN_SIGNALS:
            raise InboxFull(f"{MAX_OPEN_SIGNALS} signals are pending. Wait for one to be applied or retract one.")
        self._check_bytes(row.id, None, incoming.text, LARGE_WAITING)
        row.artifacts.extend(attachments)
        self._insert(row, None, incoming, attachments)
        lane = lane_of(principal.roles)
        return Receipt(row.id, None, incoming.signal_id, SignalState.ACCEPTED, ring=False, lane=lane)

    def _parked(self, row: ConversationRow) -> list[SignalRow]:
        own = [signal for signal in self._platform.signals.values() if signal.conversation_id == row.id]
        waiting = [each for each in own if each.signal.turn_id is None and each.signal.state is SignalState.ACCEPTED]
        return sorted(waiting, key=lambda each: each.inbox_seq)

    def _open_turn(self, row: ConversationRow, principal: Principal, turn_id: TurnId, request: TurnRequest) -> Receipt:
        lane = lane_of(principal.roles)
        self._check_queue(principal)
        waited: list[RequestEvent] = []
        for parked in self._parked(row):
            waited += build_request_events([parked.signal])
            parked.signal = replace(parked.signal, state=SignalState.PROMOTED, promoted_to=turn_id)
        turn = Turn(
            id=turn_id,
            conversation_id=row.id,
            ordinal=len(self._platform.turns_of(row.id)) + 1,
            status=TurnStatus.QUEUED,
            attempt=0,
            request=replace(request, events=(*waited, *request.events)),
            created_at=self._platform.clock.now(),
        )
        opened = self._platform.turns[turn.id] = TurnRow(turn, principal, lane, principal.roles)
        ring = self._platform.try_ring(opened, self._share)
        row.state = ConversationState.QUEUED
        row.inbox_seq += 1
        position = find_position(self._platform, opened)
        return Receipt(row.id, turn.id, None, None, ring=ring, lane=lane, position=position)

    def _check_queue(self, principal: Principal) -> None:
        """Raises QueueFull when there is no place for one more turn."""
        queued = [row for row in self._platform.turns.values() if row.turn.status is TurnStatus.QUEUED]
        of_tenant = [row for row in queued if row.principal.tenant == principal.tenant]
        on_lane = sum(row.lane is lane_of(principal.roles) for row in of_tenant)
        of_user = sum(row.principal.owner == principal.owner for row in of_tenant)
        self._caps.check(QueueCounts(len(queued) + 1, len(of_tenant) + 1, on_lane + 1, of_user + 1))

    def _append_signal(self, row: ConversationRow, principal: Principal, incoming: IncomingSignal) -> Receipt:
        turn = self._platform.open_turn(row.id)
        if turn is None:
            raise Conflict("This conversation has no open turn.")
        turn_id = turn.turn.id
        if incoming.target_turn_id not in (None, turn_id):
            raise Conflict(f"{incoming.target_turn_id} is not the open turn.")
        self._check_room(turn_id, incoming.kind)
        if incoming.kind not in BOUNDED_KINDS:
            self._check_bytes(row.id, turn_id, incoming.text, LARGE_TURN)
        scope = UploadScope(principal, row.id, turn_id, (ref_kind(incoming.kind, incoming.event), incoming.signal_id))
        attachments = build_attachments(incoming.uploads, scope)
        row.artifacts.extend(attachments)
        self._insert(row, turn_id, incoming, attachments)
        queued, cancels = turn.turn.status is TurnStatus.QUEUED, incoming.kind is SignalKind.CANCEL
        woken = incoming.kind in CONTROL_KINDS and wake_turn(self._platform, row.id)
        ring = woken or (cancels and queued)
        lane = Lane.CONTROL if ring and cancels else turn.lane
        return Receipt(row.id, turn_id, incoming.signal_id, SignalState.ACCEPTED, ring=ring, lane=lane)

    def _append_answer(self, row: ConversationRow, incoming: IncomingSignal, approval_id: ApprovalId) -> Receipt:
        receipt = answer_approval(self._platform, row.id, incoming, approval_id)
        if not receipt.replayed:
            self._insert(row, receipt.turn_id, incoming, ())
        return receipt

    def _insert(
        self,
        row: ConversationRow,
        turn_id: TurnId | None,
        incoming: IncomingSignal,
        attachments: tuple[Artifact, ...],
    ) -> None:
        row.inbox_seq += 1
        signal = Signal(
            id=incoming.signal_id,
            turn_id=turn_id,
            kind=incoming.kind,
            text=incoming.text,
            state=SignalState.ACCEPTED,
            created_at=self._platform.clock.now(),
            attachments=attachments,
            event=incoming.event,
            approval_id=incoming.approval_id,
        )
        self._platform.signals[signal.id] = SignalRow(signal, row.id, row.inbox_seq)

    def _check_room(self, turn_id: TurnId, kind: SignalKind) -> None:
        signals = [row.signal for row in self._platform.signals.values() if row.signal.turn_id == turn_id]
        alike = [signal for signal in signals if (signal.kind is SignalKind.CANCEL) is (kind is SignalKind.CANCEL)]
        waiting = [signal for signal in alike if signal.state is SignalState.ACCEPTED]
        if len(waiting) >= MAX_OPEN_SIGNALS:
            raise InboxFull(f"{MAX_OPEN_SIGNALS} signals are pending. Wait for one to be applied or retract one.")
        if len(alike) >= MAX_TURN_SIGNALS and kind is not SignalKind.CANCEL:
            raise InboxFull(FULL_TURN)

    def _check_bytes(
        self,
        conversation_id: ConversationId,
        turn_id: TurnId | None,
        text: str,
        problem: str,
        *,
        edited: SignalId | None = None,
    ) -> None:
        own = [row.signal for row in self._platform.signals.values() if row.conversation_id == conversation_id]
        others = [
            len(signal.text.encode())
            for signal in own
            if signal.turn_id == turn_id
            and signal.id != edited
            and signal.kind not in BOUNDED_KINDS
            and (turn_id is not None or signal.state is SignalState.ACCEPTED)
        ]
        if others and sum(others) + len(text.encode()) > MAX_TURN_SIGNAL_BYTES:
            raise Conflict(problem)

    def _signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> SignalRow:
        self._platform.conversation(principal, conversation_id)
        row = self._platform.signals.get(signal_id)
        if row is None or row.conversation_id != conversation_id:
            raise NotFound(signal_id)
        return row

    def _replay(self, principal: Principal, key: IdempotencyKey | None) -> Receipt | None:
        used = None if key is None else self._platform.keys.get(_key(principal, key))
        if key is None or used is None:
            return None
        if used.request_hash != key.request_hash:
            raise KeyReused()
        return replace(used.receipt, ring=False, replayed=True)

    def _keep(self, principal: Principal, key: IdempotencyKey | None, receipt: Receipt) -> Receipt:
        if key is not None:
            self._platform.keys[_key(principal, key)] = UsedKey(key.request_hash, receipt)
        return receipt


def _check_no_answer(signal: Signal) -> None:
    if signal.approval_id is not None:
        raise Conflict("The answer to an approval can't be changed.")


def _check_bundle(bundle_id: str | None, open_bundles: frozenset[str] | None) -> None:
    if open_bundles is not None and (bundle_id or DEFAULT_BUNDLE) not in open_bundles:
        raise UnknownBundle()


def _is_idle(row: ConversationRow) -> bool:
    return row.state in (ConversationState.IDLE, ConversationState.ERROR)


def _key(principal: Principal, key: IdempotencyKey) -> tuple[str, str, str, str, str]:
    return (*principal.owner, key.route, key.key)
