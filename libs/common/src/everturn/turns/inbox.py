"""Accepting what people send: one transaction that makes a message a turn, or a signal into the turn that runs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from everturn.core.errors import Conflict, Invalid, Unavailable
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ApprovalId, ConversationId, SignalId, TurnId
from everturn.files.model import Upload
from everturn.queue.ports import QueuePosition
from everturn.timeline.turns import ExternalEvent, Signal, SignalKind, SignalState


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's key for one submit on one route, and the hash (hex) of what it submitted."""

    route: str
    key: str
    request_hash: str


class KeyReused(Invalid):
    """This Idempotency-Key was used for another request."""


class KeyBusy(Conflict):
    """A request with this Idempotency-Key is still being processed."""


UPLOAD_LIMIT = timedelta(minutes=2)
"""At most, from the beginning of an upload to its commit, by the database's time. Whoever deletes objects that no row
names waits longer than that, so that no row is ever committed whose object is gone."""


class UploadTooLate(Unavailable):
    """The files of this message were stored too long ago to be accepted. Send it again."""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message that passed all checks; the bytes of its files are stored already.

    The driver gives the uploads their addresses by `model.uploads.build_attachments`, because only its transaction
    knows whether they belong to a turn of their own (place without signal) or to a signal into the open turn.

    `create` makes the conversation (the message went to `new`). `kind` matters for a busy one only. A target that has
    ended in a conversation at rest makes the message the next turn, as it does with what comes a moment too late.
    `turn_id` and `signal_id` are fresh ids, of which one will be used. `trace` and
    `time_zone` are kept with a turn of its own.
    """

    conversation_id: ConversationId
    create: bool
    text: str
    uploads: tuple[Upload, ...]
    turn_id: TurnId
    signal_id: SignalId
    kind: SignalKind | None = None
    target_turn_id: TurnId | None = None
    bundle_id: str | None = None
    trace: str | None = None
    time_zone: str | None = None


@dataclass(frozen=True, slots=True)
class IncomingSignal:
    """A followup, steer or cancel said on purpose, an external event, or the answer to an approval.

    `signal_id` and `turn_id` are fresh ids; the second is for the turn that a reactive event opens, and for the paths
    of the files of an event that waits for a turn. Only events need it. `approval_id` is there for answers only, and
    `trace` is kept with a turn that the event opens.
    """

    signal_id: SignalId
    kind: SignalKind
    text: str
    uploads: tuple[Upload, ...] = ()
    target_turn_id: TurnId | None = None
    event: ExternalEvent | None = None
    turn_id: TurnId | None = None
    approval_id: ApprovalId | None = None
    trace: str | None = None


MAX_OPEN_SIGNALS = 64
"""Signals of one turn that wait to be folded, cancels counted apart, and events that wait for the next turn: a worker
holds all of them in memory."""


MAX_TURN_SIGNALS = 500
"""Signals of one turn in all, and its cancels apart. Workers read all of them, and clients show them.

A turn can always be cancelled, so beyond that many cancels no more are refused, but none can be retracted: with those
that wait, a turn has at most MAX_OPEN_SIGNALS more.
"""


MAX_TURN_SIGNAL_BYTES = 8 * 1024 * 1024
"""Of the stored signals of a turn, without cancels and answers to approvals; the first is accepted at any size. The
request of the turn is counted apart: it can have as much again in events that waited for it."""


FULL_TURN = f"This turn already has {MAX_TURN_SIGNALS} signals. Wait for it to end, or cancel it."
LAST_CANCELS = f"This turn already has {MAX_TURN_SIGNALS} cancels. This one can't be retracted."
LARGE_TURN = (
    f"The messages of this turn would have more than {MAX_TURN_SIGNAL_BYTES // 2**20} MiB. "
    "Wait for it to end, or cancel it."
)
LARGE_EDIT = (
    f"With this text the messages of the turn would have more than {MAX_TURN_SIGNAL_BYTES // 2**20} MiB. Shorten it."
)
LARGE_WAITING = (
    f"The events waiting for the next turn would have more than {MAX_TURN_SIGNAL_BYTES // 2**20} MiB. "
    "Send a message to start the turn, or retract an event."
)

MAX_REASON_CHARS = 10_000
"""Of a cancel or an answer to an approval: they are accepted however large the turn is."""
BOUNDED_KINDS = frozenset({SignalKind.CANCEL, SignalKind.APPROVE, SignalKind.DENY})
"""Their texts are short, so they don't count towards MAX_TURN_SIGNAL_BYTES."""


def check_reason(kind: SignalKind, text: str) -> None:
    """Raise Invalid when the text of a cancel or an answer is too long."""
    if kind in BOUNDED_KINDS and len(text) > MAX_REASON_CHARS:
        raise Invalid(f"The text of a signal of kind {kind.value} can have at most {MAX_REASON_CHARS:,} characters.")


class InboxFull(Conflict):
    """Too many messages are waiting for the running turn, or were sent to it."""


TENANT_SHARE = 2
"""How many turns of one tenant may be on one lane; those beyond wait without a doorbell until one of them is taken.

Whoever comes to the lane waits for so many of each other tenant's; two keep workers busy, as the next is rung when one
is taken. How much longer a light tenant waits beside a flood isn't measured yet.
"""
TENANT_QUEUED_MAX = 500
"""Turns of one tenant that may wait on one lane."""


class TenantFull(Conflict):
    """Too many turns of this tenant are already waiting."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message: a turn of its own (`signal_id` None) or a signal into `turn_id`.

    Without `turn_id` it is an event that waits for the next turn.
    `ring` is whether the doorbell on `lane` is to be rung now; a replayed answer never rings.
    `position` is where a new turn stood when it was accepted, also in a replayed answer.
    `file_notices` are for the client; whoever checked the files adds them, and no inbox knows them.
    """

    conversation_id: ConversationId
    turn_id: TurnId | None
    signal_id: SignalId | None
    state: SignalState | None
    ring: bool
    lane: Lane
    replayed: bool = False
    position: QueuePosition | None = None
    file_notices: tuple[str, ...] = ()


class Inbox(Protocol):
    """All calls are one transaction each and see only the principal's own rows.

    Accepting raises UploadTooLate when the upload of a file began too long ago.
    """

    async def load_now(self) -> datetime:
        """The database's time, for `Upload.begun_at`."""
        ...

    async def accept_message(
        self, principal: Principal, message: IncomingMessage, key: IdempotencyKey | None
    ) -> Receipt:
        """Insert a turn (conversation idle) or a signal (busy), and the artifact rows.

        Raises NotFound, KeyReused, KeyBusy (a twin did not commit in 2 s), InboxFull, TenantFull, and Conflict when the
        target is not the open turn, or no turn of this conversation.
        """
        ...

    async def try_load_receipt(self, principal: Principal, key: IdempotencyKey) -> Receipt | None:
        """What was answered to this request, as a replay; None where it was not accepted, or not yet.

        Raises KeyReused.
        """
        ...

    async def accept_signal(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        signal: IncomingSignal,
        key: IdempotencyKey | None,
    ) -> Receipt:
        """Insert a signal into the open turn; cancels have room of their own. Raises Invalid as `check_reason` does.

        With no turn open a reactive event opens one, and one to be recorded waits for the next; anything else, and an
        event with a target, raises Conflict. Raises NotFound, InboxFull, TenantFull, KeyReused, KeyBusy.

        The first answer to an approval counts. The same answer again gets the first one's receipt; another, or one that
        comes too late, raises Conflict, one to an approval that this conversation does not have NotFound. An answer, a
        steer and a cancel wake the turn that waits; what else is said waits with it.
        """
        ...

    async def load_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal: ...

    async def save_signal_text(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId, text: str
    ) -> Signal:
        """Edit a signal that is still ACCEPTED. Raises Conflict when it is not, or answers an approval, or would
        grow beyond what the turn can have; Invalid as `check_reason` does."""
        ...

    async def retract_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal:
        """Take back a signal that is still ACCEPTED. Retracting twice is fine.

        Raises Conflict when it is not ACCEPTED any more, or answers an approval, or is a cancel of a turn that has too
        many of them.
        """
        ...
