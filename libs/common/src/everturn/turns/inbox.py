"""Accepting what people send: one transaction turns a message into a turn, or into a signal to the open turn."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from everturn.core.errors import Conflict, Invalid, Unavailable
from everturn.core.identity import Lane, Principal
from everturn.core.ids import ApprovalId, ConversationId, SignalId, TurnId
from everturn.files.model import Upload
from everturn.queue.model import QueuePosition
from everturn.timeline.turns import ExternalEvent, Signal, SignalKind, SignalState

UPLOAD_LIMIT = timedelta(minutes=2)
"""The longest time from the beginning of an upload to its commit, in database time. The job that deletes unreferenced
objects waits longer, so that a committed row never names a deleted object."""

MAX_OPEN_SIGNALS = 64
"""Unfolded signals of one turn (cancels are counted separately), and events that wait for the next turn. A worker holds
all of them in memory."""

MAX_TURN_SIGNALS = 500
"""All signals of one turn; its cancels are counted separately. Workers read all of them, and clients show them.

Beyond this many cancels more are accepted while fewer than MAX_OPEN_SIGNALS wait, but none can be retracted. So a turn
has at most MAX_OPEN_SIGNALS more of them.
"""

MAX_TURN_SIGNAL_BYTES = 8 * 1024 * 1024
"""Total size of a turn's stored signals, without cancels and answers to approvals; the first one is accepted at any
size. The turn's request is counted separately: it can have the same size again in events that waited for it."""

FULL_TURN = f"This turn already has {MAX_TURN_SIGNALS} signals. Wait for it to end, or cancel it."
LAST_CANCELS = f"This turn already has {MAX_TURN_SIGNALS} cancels. This one can't be retracted."
LARGE_TURN = (
    f"The messages of this turn would be larger than {MAX_TURN_SIGNAL_BYTES // 2**20} MiB. "
    "Wait for it to end, or cancel it."
)
LARGE_EDIT = (
    f"With this text the messages of the turn would be larger than {MAX_TURN_SIGNAL_BYTES // 2**20} MiB. Shorten it."
)
LARGE_WAITING = (
    f"The events waiting for the next turn would be larger than {MAX_TURN_SIGNAL_BYTES // 2**20} MiB. "
    "Send a message to start the turn, or retract an event."
)

MAX_CONTROL_TEXT_CHARS = 10_000
"""Limit for a cancel or an answer to an approval, which are accepted however large the turn is."""
BOUNDED_KINDS = frozenset({SignalKind.CANCEL, SignalKind.APPROVE, SignalKind.DENY})
"""Their texts are short, so they don't count towards MAX_TURN_SIGNAL_BYTES."""

TENANT_SHARE = 2
"""How many queued turns of one tenant have a doorbell on one lane. The others wait without one until one of these is
claimed.

A new turn waits behind at most this many turns of each other tenant. Two keep workers busy, because the next doorbell
is rung when a turn is claimed. How much longer a small tenant waits during another tenant's flood isn't measured yet.
"""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's key for one submit on one route, and the hash (hex) of the submitted request."""

    route: str
    key: str
    request_hash: str


class KeyReused(Invalid):
    """This Idempotency-Key was used for another request."""


class KeyBusy(Conflict):
    """A request with this Idempotency-Key is still being processed."""


class UploadTooLate(Unavailable):
    """The files of this message were stored too long ago to be accepted. Send it again."""


class UnknownBundle(Invalid):
    """The bundle of this conversation is not available to this caller."""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message that passed all checks; its files are already stored.

    The driver gives the uploads their addresses with `build_attachments`, because only its transaction knows whether
    they belong to a new turn (a scope without a signal) or to a signal to the open turn.

    `create` creates the conversation (the message was sent to `new`). `kind` matters only if a turn is open. If no turn
    is open and the target has ended, the message becomes the next turn, as does a message that arrives just too late.
    `turn_id` and `signal_id` are fresh ids, of which one is used. `trace` and `time_zone` are stored only with a new
    turn. A new turn has the bundle `bundle_id`, otherwise that of its conversation. It must be one of `open_bundles`,
    where DEFAULT_BUNDLE stands for none; None allows any.
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
    open_bundles: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class IncomingSignal:
    """An explicit followup, steer or cancel, an external event, or the answer to an approval.

    `signal_id` and `turn_id` are fresh ids. Only events need `turn_id`: for the turn that a reactive event opens, and
    for the file paths of an event that waits for a turn. Only answers have an `approval_id`. `trace` is stored with a
    turn that the event opens, and `open_bundles` has the same meaning for it as for that of a message.
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
    open_bundles: frozenset[str] | None = None


def check_reason(kind: SignalKind, text: str) -> None:
    """Raise Invalid when the text of a cancel or an answer is too long."""
    if kind in BOUNDED_KINDS and len(text) > MAX_CONTROL_TEXT_CHARS:
        raise Invalid(
            f"The text of a signal of kind {kind.value} can have at most {MAX_CONTROL_TEXT_CHARS:,} characters."
        )


class InboxFull(Conflict):
    """Too many messages are waiting for the running turn, or were sent to it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of accepting a message: a new turn (`signal_id` None) or a signal to `turn_id`.

    Without `turn_id` it is an event that waits for the next turn. `ring` says whether to ring the doorbell on `lane`
    now; it is false in a replayed answer. `position` is the place in the queue when a new turn was accepted, also in a
    replayed answer. `file_notices` are for the client; the file check adds them, not the inbox.
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
    """Each call is one transaction and sees only the principal's own rows.

    Accepting raises UploadTooLate when the upload of a file began too long ago.
    """

    async def load_now(self) -> datetime:
        """The database's time, for `Upload.begun_at`."""
        ...

    async def accept_message(
        self, principal: Principal, message: IncomingMessage, key: IdempotencyKey | None
    ) -> Receipt:
        """Insert a turn (conversation idle) or a signal (busy), and the artifact rows.

        A new turn takes over events that wait for it. It is checked against the caps of the queue in the same
        transaction, and `Receipt.ring` says whether it has a place within its tenant's share of the queue.

        Raises NotFound, KeyReused, KeyBusy (a request with the same key did not commit in 2 s), InboxFull, QueueFull,
        UnknownBundle for a new turn, and Conflict when the target is not the open turn, or not a turn of this
        conversation.
        """
        ...

    async def try_load_receipt(self, principal: Principal, key: IdempotencyKey) -> Receipt | None:
        """The stored answer to this request, marked as a replay; None when it was not accepted, or not yet.

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
        """Insert a signal to the open turn; cancels have a limit of their own. Raises Invalid as `check_reason` does.

        With no turn open, a reactive event opens one, and a recorded event waits for the next one. Anything else, and
        an event with a target, raises Conflict. Raises NotFound, InboxFull, QueueFull, UnknownBundle, KeyReused,
        KeyBusy.

        The first answer to an approval counts. Repeating it returns the first receipt. A different answer or a late one
        raises Conflict, and an unknown approval NotFound. An answer, a steer and a cancel wake a waiting turn; other
        signals wait with it.
        """
        ...

    async def load_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal: ...

    async def save_signal_text(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId, text: str
    ) -> Signal:
        """Edit a signal that is still ACCEPTED. Raises Conflict when it is not, when it answers an approval, or when
        the turn would become too large. Raises Invalid as `check_reason` does."""
        ...

    async def retract_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal:
        """Retract a signal that is still ACCEPTED. Retracting twice is fine.

        Raises Conflict when it is no longer ACCEPTED, answers an approval, or is a cancel of a turn that has too many
        of them.
        """
        ...
