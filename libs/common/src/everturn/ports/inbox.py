"""Accepting what people send: one transaction that makes a message a turn, or a signal into the turn that runs."""

from dataclasses import dataclass
from typing import Protocol

from everturn.errors import Conflict, Invalid
from everturn.model.identity import Lane, Principal
from everturn.model.ids import ConversationId, SignalId, TurnId
from everturn.model.signals import Signal, SignalKind, SignalState
from everturn.model.uploads import Upload


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's key for one submit on one route, and the hash (hex) of what it submitted."""

    route: str
    key: str
    request_hash: str


class KeyReused(Invalid):
    """This Idempotency-Key was used for another request."""


class KeyBusy(Conflict):
    """A request with this Idempotency-Key is still being worked on."""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message that passed all checks; the bytes of its files are stored already.

    The driver gives the uploads their addresses by `model.uploads.build_attachments`, because only its transaction
    knows whether they belong to a turn of their own (place without signal) or to a signal into the open turn.

    `create` makes the conversation (the message went to `new`). `kind` and `target_turn_id` matter for a busy one only.
    `turn_id` and `signal_id` are fresh ids, of which one will be used.
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


@dataclass(frozen=True, slots=True)
class IncomingSignal:
    """A followup, steer or cancel said on purpose."""

    signal_id: SignalId
    kind: SignalKind
    text: str
    uploads: tuple[Upload, ...] = ()
    target_turn_id: TurnId | None = None


MAX_OPEN_SIGNALS = 64
"""Signals of one turn that wait to be folded, cancels counted apart: a worker holds all of them in memory."""


class InboxFull(Conflict):
    """Too many messages wait for the running turn."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message: a turn of its own (`signal_id` None) or a signal into `turn_id`.

    `ring` is whether the doorbell on `lane` is to be rung now; a replayed answer never rings.
    """

    conversation_id: ConversationId
    turn_id: TurnId
    signal_id: SignalId | None
    state: SignalState | None
    ring: bool
    lane: Lane
    replayed: bool = False


class Inbox(Protocol):
    """All calls are one transaction each and see only the principal's own rows."""

    async def accept_message(
        self, principal: Principal, message: IncomingMessage, key: IdempotencyKey | None
    ) -> Receipt:
        """Insert a turn (conversation idle) or a signal (busy), and the artifact rows.

        Raises NotFound, KeyReused, KeyBusy (a twin did not commit in 2 s), Conflict (another turn is open), InboxFull.
        """
        ...

    async def accept_signal(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        signal: IncomingSignal,
        key: IdempotencyKey | None,
    ) -> Receipt:
        """Insert a signal into the open turn; cancels have room of their own.

        Raises NotFound, Conflict when no turn is open, InboxFull, KeyReused, KeyBusy.
        """
        ...

    async def load_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal: ...

    async def save_signal_text(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId, text: str
    ) -> Signal:
        """Edit a signal that is still ACCEPTED. Raises Conflict when it is not."""
        ...

    async def retract_signal(
        self, principal: Principal, conversation_id: ConversationId, signal_id: SignalId
    ) -> Signal:
        """Take back a signal that is still ACCEPTED. Raises Conflict when it is not. Retracting twice is fine."""
        ...
