"""Accepting messages and signals: checks, files, one transaction, and then notifications, which can fail."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import structlog
from fastapi import Request
from starlette.datastructures import Headers
from structlog.contextvars import bind_contextvars

from everturn.core.cancellation import answered_within
from everturn.core.clock import Clock
from everturn.core.errors import EverturnError, NotFound, Unavailable
from everturn.core.failpoints import Failpoints
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ApprovalId, ConversationId, Ids, SignalId, TurnId, is_id
from everturn.core.metrics import MESSAGES_ACCEPTED
from everturn.core.threads import call_sized
from everturn.core.tracing import NO_TRACING, Tracing
from everturn.core.work_slots import NoRoom, WorkSlots
from everturn.events.stream import Hint, Notifications
from everturn.queue.model import QueueFull
from everturn.timeline.inert import is_blank
from everturn.timeline.turns import ANSWER_KINDS, MAX_PAYLOAD_BYTES, ExternalEvent, Signal, SignalKind
from everturn.turns.inbox import (
    IdempotencyKey,
    Inbox,
    IncomingMessage,
    IncomingSignal,
    Receipt,
    UnknownBundle,
    UploadTooLate,
)
from ingress.admission.idempotency import IdempotencyLocks, build_key, try_read_key, wait_for_concurrent_request
from ingress.admission.queue_gate import Admission, WorkGate
from ingress.attachments.intake import IncomingFile, Intake, SavedFiles
from ingress.bundles import Bundles, OpenBundles
from ingress.chat.schemas import MAX_APPROVAL_REASON_CHARS, MessageIn, SignalIn, Submission
from ingress.errors import ProblemError, too_large, unprocessable
from ingress.fields import parse_conversation_id
from ingress.metrics import IngressMetrics

_log = structlog.get_logger(__name__)

NEW = "new"
KEPT_LIMIT_S = 0.5
"""How long a refusal waits for the stored answer of an earlier request, in seconds."""

STORED_AT_ONCE, STORED_AT_ONCE_OF_PERSON, WAITING_TO_BE_STORED = 12, 3, 256
"""Transactions of messages that run at once in this process, how many of them for one person, and messages that wait.
Fewer than the connections of the pool: a message of megabytes holds its connection while it is written, and one
person's flood of them must leave connections for everybody else."""
STORE_WAIT_S = 10.0
"""How long a message waits for its transaction to begin: as long as one statement can take. While the database hangs,
each transaction takes seconds to fail, and a message must not wait for all those before it."""


class ChatService:
    """Implements the chat endpoints."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        notifications: Notifications,
        gate: WorkGate,
        intake: Intake,
        ids: Ids,
        clock: Clock,
        metrics: IngressMetrics,
        event_kinds: frozenset[str],
        bundles: Bundles,
        failpoints: Failpoints | None = None,
        tracing: Tracing = NO_TRACING,
        store_wait_s: float = STORE_WAIT_S,
    ) -> None:
        self._inbox = inbox
        self._event_kinds = event_kinds
        self._bundles = bundles
        self._notifications = notifications
        self._gate = gate
        self._intake = intake
        self._ids = ids
        self._clock = clock
        self._metrics = metrics
        self._idempotency_locks = IdempotencyLocks(clock)
        self._storing = WorkSlots(
            STORED_AT_ONCE,
            WAITING_TO_BE_STORED,
            "This server is storing too many messages at once. Try again later.",
            at_once_of_owner=STORED_AT_ONCE_OF_PERSON,
            longest_wait_s=store_wait_s,
        )
        self._failpoints = failpoints or Failpoints()
        self._tracing = tracing

    async def accept_message(
        self, principal: Principal, conversation: str, submission: Submission[MessageIn], headers: Headers
    ) -> Receipt:
        """Store a message as a turn, or as a signal for the running turn; `conversation` can be `new`."""
        form = submission.form
        _check_content(form.text, submission.files)
        target = parse_turn_id(form.target_turn_id)
        key = await _load_key(headers, _route(principal, conversation, "messages"), submission)

        async def store(admission: Admission, wait_s: float) -> Receipt:
            conversation_id = self._ids.conversation() if conversation == NEW else parse_conversation_id(conversation)
            bundles = await self._bundles.load_open(principal)
            if form.bundle_id is not None:
                bundles.check(form.bundle_id)
            saved = await self._take_files(principal, conversation_id, submission.files)
            message = IncomingMessage(
                conversation_id=conversation_id,
                create=conversation == NEW,
                text=form.text,
                uploads=saved.uploads,
                turn_id=self._ids.turn(),
                signal_id=self._ids.signal(),
                kind=SignalKind(form.kind) if form.kind else None,
                target_turn_id=target,
                bundle_id=form.bundle_id,
                time_zone=form.time_zone,
                trace=self._load_trace(),
                open_bundles=bundles.ids,
            )
            commit = partial(self._inbox.accept_message, principal, message, key)
            receipt = await self._accept(principal, admission, saved, commit, bundles, wait_s=wait_s)
            return replace(receipt, file_notices=saved.notices())

        return await self._run_admitted(principal, key, store, new_work=True)

    async def accept_signal(
        self, principal: Principal, conversation_id: ConversationId, submission: Submission[SignalIn], headers: Headers
    ) -> Receipt:
        """Store a signal for the open turn."""
        form = submission.form
        if form.kind == "followup":
            _check_content(form.text, submission.files)
        if form.kind == "cancel" and submission.files:
            raise unprocessable("A cancel can't have files.")
        approval_id = _read_approval(submission)
        event = self._read_event(form)
        target = parse_turn_id(form.target_turn_id)
        key = await _load_key(headers, _route(principal, conversation_id, "signals"), submission)
        may_open = event is not None and event.reactive

        async def store(admission: Admission, wait_s: float) -> Receipt:
            bundles = await self._bundles.load_open(principal) if may_open else None
            saved = await self._take_files(principal, conversation_id, submission.files)
            signal = IncomingSignal(
                signal_id=self._ids.signal(),
                kind=SignalKind(form.kind),
                text=form.text,
                uploads=saved.uploads,
                target_turn_id=target,
                event=event,
                turn_id=self._ids.turn(),
                approval_id=approval_id,
                trace=self._load_trace(),
                open_bundles=bundles.ids if bundles else None,
            )
            commit = partial(self._inbox.accept_signal, principal, conversation_id, signal, key)
            receipt = await self._accept(principal, admission, saved, commit, bundles, wait_s=wait_s)
            return replace(receipt, file_notices=saved.notices())

        return await self._run_admitted(principal, key, store, new_work=may_open)

    async def _run_admitted(
        self,
        principal: Principal,
        key: IdempotencyKey | None,
        store: Callable[[Admission, float], Awaitable[Receipt]],
        *,
        new_work: bool,
    ) -> Receipt:
        """Admit and store a request. A request that was already accepted gets its first answer, even if it would be
        rejected now: the queue is full, the antivirus or the store is unavailable, or a scan now finds something in a
        file."""
        async with self._idempotency_locks.hold(principal, key) as wait_s:
            try:
                admission = await self._gate.admit(principal, new_work=new_work)
                try:
                    return await store(admission, wait_s)
                finally:
                    admission.leave()
            except (ProblemError, Unavailable):
                kept = await self._try_load_receipt(principal, key)
                if kept is None:
                    raise
                return kept

    async def _try_load_receipt(self, principal: Principal, key: IdempotencyKey | None) -> Receipt | None:
        if key is None:
            return None
        try:
            async with answered_within(KEPT_LIMIT_S):
                return await self._inbox.try_load_receipt(principal, key)
        except (TimeoutError, Unavailable) as error:
            _log.warning("Could not read a recorded answer", error=str(error))
            return None

    def _load_trace(self) -> str | None:
        current = self._tracing.current()
        return str(current) if current else None

    def _read_event(self, form: SignalIn) -> ExternalEvent | None:
        """Raises a 422 that names the field, or a 413, unless there is an event exactly when the kind is `event`."""
        if (form.event is None) is (form.kind == "event"):
            raise _bad_field("event", "is required for signals of kind `event`, and not allowed for others.")
        if form.event is None:
            return None
        if form.event.kind not in self._event_kinds:
            raise _bad_field("event.kind", f"must be one of {', '.join(sorted(self._event_kinds))}.")
        if len(json.dumps(form.event.payload, ensure_ascii=False).encode(errors="surrogatepass")) > MAX_PAYLOAD_BYTES:
            raise too_large(f"body.event.payload is larger than {MAX_PAYLOAD_BYTES} bytes as JSON.")
        event = form.event
        credit = event.iteration_credit if event.reactive else 0
        return ExternalEvent(event.kind, event.payload, event.reactive, credit)

    async def _take_files(
        self, principal: Principal, conversation_id: ConversationId, files: Sequence[IncomingFile]
    ) -> SavedFiles:
        checked = await self._intake.check_files(principal, files)
        if not checked:
            return SavedFiles(())
        saved = await self._intake.save_files(conversation_id, checked, await self._inbox.load_now())
        self._failpoints.hit("message.saved")
        return saved

    async def _accept(
        self,
        principal: Principal,
        admission: Admission,
        saved: SavedFiles,
        commit: Callable[[], Awaitable[Receipt]],
        bundles: OpenBundles | None,
        *,
        wait_s: float,
    ) -> Receipt:
        try:
            async with self._storing.acquire(principal.limited_as):
                receipt = await wait_for_concurrent_request(commit, self._clock, wait_s=wait_s)
            opened = receipt.signal_id is None and not receipt.replayed
            admission.settle() if opened else admission.leave()
        except QueueFull as error:
            await self._intake.discard(saved)
            raise await self._gate.refuse(principal, error) from error
        except (UploadTooLate, NoRoom):
            await self._intake.discard(saved)
            raise
        except Unavailable:
            # It is unknown whether this was committed. If no row names these objects, workers delete them later.
            _log.warning("A message failed but may have been stored", objects=saved.keys())
            raise
        except EverturnError as error:
            await self._intake.discard(saved)
            if isinstance(error, UnknownBundle) and bundles is not None:
                raise bundles.refuse_own() from error
            raise
        if receipt.replayed:
            # The first request stored files of its own.
            await self._intake.discard(saved)
            # The process that stored it may have died before it sent its notifications.
            await self._notify_accepted(receipt)
            return receipt
        kind = "signal" if receipt.signal_id else "turn"
        MESSAGES_ACCEPTED.labels(kind=kind).inc()
        # A new conversation gets its id only now.
        bind_contextvars(conversation_id=receipt.conversation_id, turn_id=receipt.turn_id)
        _log.info("Accepted a message", kind=kind, lane=receipt.lane.value)
        await self._notify_accepted(receipt)
        return receipt

    async def _notify_accepted(self, receipt: Receipt) -> None:
        hint = Hint("signal" if receipt.signal_id else "status", receipt.conversation_id, receipt.signal_id or "")
        await self._notify(hint, ring_lane=receipt.lane if receipt.ring else None)

    async def _notify(self, hint: Hint, *, ring_lane: Lane | None = None) -> None:
        """Notify workers and clients. Best effort: a worker or the sweeper finds the row within seconds anyway."""
        for what, why in (await self._notifications.send(hint, ring_lane=ring_lane)).items():
            self._metrics.notifications_failed.inc()
            _log.warning("Could not send a notification", what=what, error=why)

    async def load_signal(self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId) -> Signal:
        """A signal with its receipt."""
        return await self._inbox.load_signal(principal, conversation_id, signal_id)

    async def edit_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId, text: str
    ) -> Signal:
        """Replace the text of a signal that was not applied yet."""
        if is_blank(text):
            raise unprocessable("The text is empty.")
        signal = await self._inbox.save_signal_text(principal, conversation_id, signal_id, text)
        await self._notify(Hint("signal", conversation_id, signal_id))
        return signal

    async def retract_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal:
        """Retract a signal that was not applied yet."""
        signal = await self._inbox.retract_signal(principal, conversation_id, signal_id)
        await self._notify(Hint("signal", conversation_id, signal_id))
        return signal


async def chat_service(request: Request) -> ChatService:
    """The service of this application."""
    return cast(ChatService, request.app.state.chat)


def parse_turn_id(text: str | None) -> TurnId | None:
    """Parse a target; one that is not an id can't be the open turn (422)."""
    if text is not None and not is_id(text, "turn"):
        raise _bad_field("target_turn_id", "is not a turn id.")
    return TurnId(text) if text is not None else None


def _read_approval(submission: Submission[SignalIn]) -> ApprovalId | None:
    """The approval that a signal answers. Raises a 422 that names the field; a malformed id does not exist (404)."""
    form = submission.form
    answers = SignalKind(form.kind) in ANSWER_KINDS
    if (form.approval_id is not None) is not answers:
        raise _bad_field(
            "approval_id", "is required for signals of kind `approve` and `deny`, and not allowed for others."
        )
    if form.approval_id is None:
        return None
    if submission.files:
        raise unprocessable("An answer to an approval can't have files.")
    if len(form.text) > MAX_APPROVAL_REASON_CHARS:
        raise _bad_field(
            "text", f"of an answer to an approval can have at most {MAX_APPROVAL_REASON_CHARS} characters."
        )
    if not is_id(form.approval_id, "appr"):
        raise NotFound(form.approval_id)
    return ApprovalId(form.approval_id)


def _bad_field(name: str, sentence: str) -> ProblemError:
    return unprocessable(f"body.{name} {sentence}", errors=[{"field": f"body.{name}", "message": sentence}])


def _check_content(text: str, files: Sequence[IncomingFile]) -> None:
    if is_blank(text) and not files:
        raise unprocessable("The message is empty.")


def _route(principal: Principal, conversation: str, what: str) -> str:
    return f"POST /conversations/{principal.tenant}/{principal.project}/{conversation}/{what}"


async def _load_key(headers: Headers, route: str, submission: Submission[Any]) -> IdempotencyKey | None:
    """The request's idempotency key, if it has one; only then the content is hashed, which is slow for large files."""
    if try_read_key(headers) is None:
        return None
    size = len(submission.form.text) + sum(len(file.data) for file in submission.files)
    return await call_sized(size, lambda: build_key(headers, route=route, content=_content(submission)))


def _content(submission: Submission[Any]) -> dict[str, Any]:
    files = [[file.filename, file.declared, file.sha256] for file in submission.files]
    # The time zone is left out: a message repeated from another time zone is the same message.
    return {**submission.form.model_dump(mode="json", exclude={"attachments", "time_zone"}), "files": files}
