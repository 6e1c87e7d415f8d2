"""Accepting messages and signals in Postgres: one transaction, with the stored answer of its idempotency key.

What opens a turn is accepted in one call of `accept_turn`. A signal to an open turn takes several, because the refs of
its files name the turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Lane, Principal, lane_of
from everturn.core.ids import ConversationId, SignalId, TurnId
from everturn.files.model import Artifact, Upload, UploadScope, build_attachments
from everturn.files.postgres import append_artifacts, build_artifacts_json
from everturn.postgres.pool import Connection, Database, LockTimeout, Row, translated
from everturn.queue.model import MAX_AHEAD, QUEUE_CAPS, QueueCaps, QueueCounts
from everturn.timeline.turns import CONTROL_KINDS, RequestEvent, Signal, SignalKind, SignalState, TurnRequest, ref_kind
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
    KeyBusy,
    KeyReused,
    Receipt,
    UnknownBundle,
    UploadTooLate,
    check_reason,
)
from everturn.turns.postgres_approvals import answer_approval
from everturn.turns.postgres_rows import (
    SIGNAL_COLUMNS,
    build_event_json,
    build_partial_request_json,
    build_payload_json,
    build_receipt_json,
    read_receipt,
    read_signal,
)

_CLAIM_KEY = "SELECT claim_key($1, $2, $3, $4, $5, $6, $7)"
_LOAD = "SELECT request_hash, response FROM idempotency WHERE route = $1 AND key = $2"
# The lock makes this transaction wait for a synchronous standby, as the one that stored the answer may not have done:
# the server ends that wait, and keeps the commit, when its client gives up. A failover could still lose it.
_LOAD_KEPT = f"{_LOAD} AND expires_at >= clock_timestamp() FOR UPDATE"
_SAVE = "UPDATE idempotency SET response = $3, conversation_id = $4 WHERE route = $1 AND key = $2"

UNLOCKED_TURNS = 256
"""So many places before the queue is full, accepts begin to go one after another. More turns than are being accepted at
once: an ingress runs 12 such transactions, so it holds for twenty ingresses."""
LANES_OF_TURNS = [lane.value for lane in Lane if lane is not Lane.CONTROL]

_NOW = "SELECT clock_timestamp()"
_ENTER = "UPDATE conversation SET inbox_seq = inbox_seq + 1 WHERE id = $1 RETURNING state, inbox_seq"
_ACCEPT_TURN = """
SELECT * FROM accept_turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                          $21, $22, $23, $24, $25, $26)
"""
_FIND_OPEN = """
SELECT id, status, lane FROM turn WHERE conversation_id = $1 AND status IN ('queued', 'running', 'waiting')
"""
_COUNT_SIGNALS = """
SELECT count(*) FILTER (WHERE state = 'accepted') AS waiting, count(*) AS sent
  FROM signal WHERE turn_id = $1 AND (kind = 'cancel') = $2
"""
_COUNT_PARKED = "SELECT count(*) FROM signal WHERE conversation_id = $1 AND turn_id IS NULL AND state = 'accepted'"
# Octets are counted without reading the texts.
_MEASURE_TURN = """
SELECT count(*) AS signals, sum(octet_length(payload)) AS bytes
  FROM signal WHERE turn_id = $1 AND kind NOT IN ('cancel', 'approve', 'deny')
"""
_MEASURE_PARKED = """
SELECT count(*) AS signals, sum(octet_length(payload)) AS bytes
  FROM signal WHERE conversation_id = $1 AND turn_id IS NULL AND state = 'accepted'
"""
_INSERT_SIGNAL = """
INSERT INTO signal (id, conversation_id, tenant, project, user_id, turn_id, inbox_seq, kind, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_LOAD_SIGNAL = f"""
SELECT {SIGNAL_COLUMNS}
  FROM signal WHERE id = $1 AND conversation_id = $2
"""


async def claim_key(
    transaction: Connection, principal: Principal, conversation_id: ConversationId, key: IdempotencyKey | None
) -> str | None:
    """None when this transaction now owns the key (a concurrent duplicate waits for it); the stored answer when the
    same request used it before.

    Raises KeyReused, KeyBusy.
    """
    if key is None:
        return None
    owner = principal.owner
    try:
        with translated():
            taken = await transaction.fetchval(
                _CLAIM_KEY, *owner, key.route, key.key, key.request_hash, conversation_id
            )
    except LockTimeout as error:
        raise KeyBusy() from error
    if taken:
        return None
    row = await transaction.fetchrow(_LOAD, key.route, key.key)
    if row is None or row["request_hash"] != key.request_hash:
        raise KeyReused()
    return str(row["response"])


async def try_load_response(transaction: Connection, key: IdempotencyKey) -> str | None:
    """The first answer to the same request, if still stored; does not claim the key. It may be shown once this
    transaction has committed. Raises KeyReused."""
    row = await transaction.fetchrow(_LOAD_KEPT, key.route, key.key)
    if row is None:
        return None
    if row["request_hash"] != key.request_hash:
        raise KeyReused()
    return str(row["response"])


async def save_response(
    transaction: Connection, key: IdempotencyKey | None, response: str, conversation_id: ConversationId
) -> None:
    """Store the answer for repeated requests; it is deleted with the conversation."""
    if key is not None:
        await transaction.execute(_SAVE, key.route, key.key, response, conversation_id)


@dataclass(frozen=True, slots=True)
class _Opening:
    """The turn that a message or a reactive event becomes if no turn is open.

    `request` has at most one event: those that wait for the turn are added when it is stored, as is the bundle of the
    conversation if the message names none.
    """

    conversation_id: ConversationId
    turn_id: TurnId
    request: TurnRequest
    uploads: tuple[Upload, ...]
    create: bool = False
    target_turn_id: TurnId | None = None
    open_bundles: frozenset[str] | None = None


class PostgresInbox:
    """Accepts messages and signals: one transaction each, guarded by the client's idempotency key.

    A tenant's turns beyond `share` on a lane wait without a doorbell; beyond `caps` none is accepted.
    """

    def __init__(
        self,
        database: Database,
        *,
        share: int = TENANT_SHARE,
        caps: QueueCaps = QUEUE_CAPS,
        upload_limit: timedelta = UPLOAD_LIMIT,
    ) -> None:
        self._database = database
        self._upload_limit = upload_limit
        self._share = share
        self._caps = caps

    async def load_now(self) -> datetime:
        async with self._database.connection() as connection:
            return await connection.fetchval(_NOW)

    async def accept_message(
        self, principal: Principal, message: IncomingMessage, key: IdempotencyKey | None
    ) -> Receipt:
        opening = _as_opening(principal, message)
        return await self._accept(principal, message.conversation_id, _as_signal(message), key, opening)

    async def try_load_receipt(self, principal: Principal, key: IdempotencyKey) -> Receipt | None:
        async with self._database.transaction(principal) as transaction:
            response = await try_load_response(transaction, key)
        return None if response is None else _replay(response)

    async def accept_signal(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        signal: IncomingSignal,
        key: IdempotencyKey | None,
    ) -> Receipt:
        check_reason(signal.kind, signal.text)
        opening = _try_as_opening(principal, conversation_id, signal)
        return await self._accept(principal, conversation_id, signal, key, opening)

    async def load_signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> Signal:
        async with self._database.transaction(principal, readonly=True) as transaction:
            return await _load_signal(transaction, conversation_id, signal_id)

    async def save_signal_text(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId, text: str
    ) -> Signal:
        async with self._database.transaction(principal) as transaction:
            await _enter(transaction, conversation_id)
            signal = await _load_signal(transaction, conversation_id, signal_id)
            if signal.state is not SignalState.ACCEPTED:
                raise Conflict(f"The signal is already {signal.state.value}.")
            _check_no_answer(signal)
            check_reason(signal.kind, text)
            before = build_payload_json(signal.text, signal.attachments, signal.event)
            payload = build_payload_json(text, signal.attachments, signal.event)
            await transaction.execute("UPDATE signal SET payload = $2 WHERE id = $1", signal_id, payload)
            if signal.kind not in BOUNDED_KINDS and len(payload.encode()) > len(before.encode()):
                await _check_bytes(transaction, conversation_id, signal.turn_id, LARGE_EDIT)
        return replace(signal, text=text)

    async def retract_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal:
        async with self._database.transaction(principal) as transaction:
            await _enter(transaction, conversation_id)
            signal = await _load_signal(transaction, conversation_id, signal_id)
            if signal.state not in (SignalState.ACCEPTED, SignalState.RETRACTED):
                raise Conflict(f"The signal is already {signal.state.value}.")
            _check_no_answer(signal)
            if signal.kind is SignalKind.CANCEL and signal.state is SignalState.ACCEPTED:
                counts = await transaction.fetchrow(_COUNT_SIGNALS, signal.turn_id, True)
                if counts and counts["sent"] > MAX_TURN_SIGNALS:
                    raise Conflict(LAST_CANCELS)
            await transaction.execute("UPDATE signal SET state = 'retracted' WHERE id = $1", signal_id)
        return replace(signal, state=SignalState.RETRACTED)

    async def _accept(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        signal: IncomingSignal,
        key: IdempotencyKey | None,
        opening: _Opening | None,
    ) -> Receipt:
        """Accept `opening` if no turn is open, in one call, and `signal` otherwise."""
        if opening is not None:
            async with self._database.connection() as connection:
                opened = await self._try_open_turn(connection, principal, opening, key)
            if opened is not None:
                return opened
        async with self._database.transaction(principal) as transaction:
            replayed = await _try_replay(transaction, principal, conversation_id, key)
            if replayed is not None:
                return replayed
            conversation = await _enter(transaction, conversation_id)
            opened = None
            if opening is not None and _is_idle(conversation):
                # The turn that was open has ended since. This transaction has already claimed the key.
                opened = await self._try_open_turn(transaction, principal, opening, None)
            if opened is not None:
                receipt = opened
            elif signal.approval_id is not None:
                receipt = await _append_answer(transaction, principal, conversation_id, signal, conversation)
            elif signal.event is not None and signal.target_turn_id is None and _is_idle(conversation):
                receipt = await _park_event(transaction, principal, conversation_id, signal, conversation)
            else:
                receipt = await _append_signal(transaction, principal, conversation_id, signal, conversation)
            await _save_response(transaction, key, receipt)
            deadline = self._find_deadline(signal.uploads)
            # Right before the commit: a process that was frozen earlier must not name objects that are deleted.
            if deadline is not None and await transaction.fetchval(_NOW) > deadline:
                raise UploadTooLate()
        return receipt

    def _find_deadline(self, uploads: Sequence[Upload]) -> datetime | None:
        """Until when the files must be accepted."""
        begun_at = min((each.begun_at for each in uploads), default=None)
        return None if begun_at is None else begun_at + self._upload_limit

    async def _try_open_turn(
        self, connection: Connection, principal: Principal, opening: _Opening, key: IdempotencyKey | None
    ) -> Receipt | None:
        """None if a turn is open. Raises as `accept_message`."""
        conversation_id, request = opening.conversation_id, opening.request
        files = [*request.attachments, *(file for event in request.events for file in event.attachments)]
        (row,) = await connection.fetch(
            _ACCEPT_TURN,
            *principal.owner,
            *((key.route, key.key, key.request_hash) if key else (None, None, None)),
            conversation_id,
            opening.create,
            opening.turn_id,
            opening.target_turn_id,
            lane_of(principal.roles).value,
            sorted(principal.roles),
            request.bundle_id,
            next(map(build_event_json, request.events), None),
            build_partial_request_json(request),
            build_artifacts_json(files),
            self._find_deadline(opening.uploads),
            LANES_OF_TURNS,
            self._share,
            UNLOCKED_TURNS,
            MAX_AHEAD + 1,
            self._caps.total,
            self._caps.tenant,
            self._caps.tenant_on_lane,
            self._caps.user,
            None if opening.open_bundles is None else sorted(opening.open_bundles),
        )
        match row["outcome"]:
            case "accepted":
                return read_receipt(row["receipt"])
            case "replayed":
                return _replay(row["receipt"])
            case "busy":
                return None
            case "key_reused":
                raise KeyReused()
            case "key_busy":
                raise KeyBusy()
            case "not_found":
                raise NotFound(conversation_id)
            case "wrong_target":
                raise Conflict(f"{opening.target_turn_id} is not a turn of this conversation.")
            case "wrong_bundle":
                raise UnknownBundle()
            case "late":
                raise UploadTooLate()
            case "full":
                counts = QueueCounts(row["waiting"], row["of_tenant"], row["of_tenant_on_lane"], row["of_user"])
                self._caps.check(counts)
            case _:
                pass
        raise LookupError(f"accept_turn returned {dict(row)}.")


def _is_idle(conversation: Row) -> bool:
    return conversation["state"] in ("idle", "error")


async def _enter(transaction: Connection, conversation_id: ConversationId) -> Row:
    """Increment inbox_seq. The row lock delays the commit that would end the open turn until this transaction is
    done."""
    row = await transaction.fetchrow(_ENTER, conversation_id)
    if row is None:
        raise NotFound(conversation_id)
    return row


async def _append_signal(
    transaction: Connection,
    principal: Principal,
    conversation_id: ConversationId,
    signal: IncomingSignal,
    conversation: Row,
) -> Receipt:
    turn = await transaction.fetchrow(_FIND_OPEN, conversation_id)
    if turn is None:
        raise Conflict("This conversation has no open turn.")
    turn_id: TurnId = turn["id"]
    if signal.target_turn_id not in (None, turn_id):
        raise Conflict(f"{signal.target_turn_id} is not the open turn.")
    await _check_room(transaction, turn_id, signal.kind)
    scope = UploadScope(principal, conversation_id, turn_id, (ref_kind(signal.kind, signal.event), signal.signal_id))
    attachments = build_attachments(signal.uploads, scope)
    # A running turn polls its inbox. A queued turn that is cancelled needs a worker, and so does one that wakes up.
    woken = signal.kind in CONTROL_KINDS and await transaction.fetchval("SELECT wake_turn($1)", conversation_id)
    cancels = signal.kind is SignalKind.CANCEL
    ring = woken or (cancels and turn["status"] == "queued")
    lane = Lane.CONTROL if ring and cancels else Lane(turn["lane"])
    receipt = Receipt(conversation_id, turn_id, signal.signal_id, SignalState.ACCEPTED, ring=ring, lane=lane)
    await _insert_signal(transaction, principal, receipt, signal, attachments, inbox_seq=conversation["inbox_seq"])
    if signal.kind not in BOUNDED_KINDS:
        await _check_bytes(transaction, conversation_id, turn_id, LARGE_TURN)
    await append_artifacts(transaction, principal, conversation_id, attachments)
    return receipt


async def _park_event(
    transaction: Connection,
    principal: Principal,
    conversation_id: ConversationId,
    signal: IncomingSignal,
    conversation: Row,
) -> Receipt:
    """The event waits for the next turn."""
    if signal.event is None or signal.turn_id is None:
        raise Conflict("This conversation has no open turn.")
    if await transaction.fetchval(_COUNT_PARKED, conversation_id) >= MAX_OPEN_SIGNALS:
        raise InboxFull(f"{MAX_OPEN_SIGNALS} signals are pending. Wait for one to be applied or retract one.")
    scope = UploadScope(principal, conversation_id, signal.turn_id, (signal.event.kind, signal.signal_id))
    attachments = build_attachments(signal.uploads, scope)
    lane = lane_of(principal.roles)
    receipt = Receipt(conversation_id, None, signal.signal_id, SignalState.ACCEPTED, ring=False, lane=lane)
    await _insert_signal(transaction, principal, receipt, signal, attachments, inbox_seq=conversation["inbox_seq"])
    await _check_bytes(transaction, conversation_id, None, LARGE_WAITING)
    await append_artifacts(transaction, principal, conversation_id, attachments)
    return receipt


async def _append_answer(
    transaction: Connection,
    principal: Principal,
    conversation_id: ConversationId,
    signal: IncomingSignal,
    conversation: Row,
) -> Receipt:
    """An answer reaches the turn as a signal; a repeated answer already has its signal."""
    if signal.approval_id is None:
        raise Conflict("approval_id is missing.")
    receipt = await answer_approval(transaction, conversation_id, signal, signal.approval_id)
    if not receipt.replayed:
        await _insert_signal(transaction, principal, receipt, signal, (), inbox_seq=conversation["inbox_seq"])
    return receipt


def _check_no_answer(signal: Signal) -> None:
    """A tool may already be acting on the answer, so it can't be changed."""
    if signal.approval_id is not None:
        raise Conflict("The answer to an approval can't be changed.")


async def _insert_signal(
    transaction: Connection,
    principal: Principal,
    receipt: Receipt,
    signal: IncomingSignal,
    attachments: tuple[Artifact, ...],
    *,
    inbox_seq: int,
) -> None:
    await transaction.execute(
        _INSERT_SIGNAL,
        signal.signal_id,
        receipt.conversation_id,
        principal.tenant,
        principal.project,
        principal.user_id,
        receipt.turn_id,
        inbox_seq,
        signal.kind.value,
        build_payload_json(signal.text, attachments, signal.event, signal.approval_id),
    )


async def _check_room(transaction: Connection, turn_id: TurnId, kind: SignalKind) -> None:
    cancels = kind is SignalKind.CANCEL
    counts = await transaction.fetchrow(_COUNT_SIGNALS, turn_id, cancels) or {"waiting": 0, "sent": 0}
    if counts["waiting"] >= MAX_OPEN_SIGNALS:
        raise InboxFull(f"{MAX_OPEN_SIGNALS} signals are pending. Wait for one to be applied or retract one.")
    if counts["sent"] >= MAX_TURN_SIGNALS and not cancels:
        raise InboxFull(FULL_TURN)


async def _check_bytes(
    transaction: Connection, conversation_id: ConversationId, turn_id: TurnId | None, problem: str
) -> None:
    """Check the sum of what was just written and what the turn, or the next turn, already has."""
    if turn_id is None:
        measured = await transaction.fetchrow(_MEASURE_PARKED, conversation_id)
    else:
        measured = await transaction.fetchrow(_MEASURE_TURN, turn_id)
    if measured and measured["signals"] > 1 and measured["bytes"] > MAX_TURN_SIGNAL_BYTES:
        # Not InboxFull: sending the same again in a moment would not help.
        raise Conflict(problem)


def _as_opening(principal: Principal, message: IncomingMessage) -> _Opening:
    attachments = build_attachments(message.uploads, UploadScope(principal, message.conversation_id, message.turn_id))
    return _Opening(
        conversation_id=message.conversation_id,
        turn_id=message.turn_id,
        request=TurnRequest(
            message.text, attachments, message.bundle_id, trace=message.trace, time_zone=message.time_zone
        ),
        uploads=message.uploads,
        create=message.create,
        target_turn_id=message.target_turn_id,
        open_bundles=message.open_bundles,
    )


def _try_as_opening(principal: Principal, conversation_id: ConversationId, signal: IncomingSignal) -> _Opening | None:
    """None if the signal opens no turn."""
    turn_id, event = signal.turn_id, signal.event
    if event is None or not event.reactive or turn_id is None or signal.target_turn_id is not None:
        return None
    scope = UploadScope(principal, conversation_id, turn_id, (event.kind, signal.signal_id))
    opened_by = RequestEvent(signal.signal_id, signal.text, event, build_attachments(signal.uploads, scope))
    request = TurnRequest("", events=(opened_by,), trace=signal.trace)
    return _Opening(conversation_id, turn_id, request, signal.uploads, open_bundles=signal.open_bundles)


def _as_signal(message: IncomingMessage) -> IncomingSignal:
    return IncomingSignal(
        signal_id=message.signal_id,
        kind=message.kind or SignalKind.FOLLOWUP,
        text=message.text,
        uploads=message.uploads,
        target_turn_id=message.target_turn_id,
    )


async def _load_signal(transaction: Connection, conversation_id: ConversationId, signal_id: SignalId) -> Signal:
    row = await transaction.fetchrow(_LOAD_SIGNAL, signal_id, conversation_id)
    if row is None:
        raise NotFound(signal_id)
    return read_signal(row)


async def _try_replay(
    transaction: Connection, principal: Principal, conversation_id: ConversationId, key: IdempotencyKey | None
) -> Receipt | None:
    response = await claim_key(transaction, principal, conversation_id, key)
    return None if response is None else _replay(response)


def _replay(response: str) -> Receipt:
    return replace(read_receipt(response), ring=False, replayed=True)


async def _save_response(transaction: Connection, key: IdempotencyKey | None, receipt: Receipt) -> None:
    await save_response(transaction, key, build_receipt_json(receipt), receipt.conversation_id)
