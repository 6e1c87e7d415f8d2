"""The rows that the in-memory drivers share: the counterpart of Postgres in a real platform."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from everturn.conversations.model import ConversationState
from everturn.core.clock import Clock
from everturn.core.errors import NotFound
from everturn.core.identity import Lane, Principal, Role
from everturn.core.ids import ApprovalId, CallId, ConversationId, SignalId, TurnId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.feedback.model import Feedback
from everturn.files.model import Artifact
from everturn.timeline.blocks import GENESIS_HASH, Block
from everturn.timeline.sources import Source
from everturn.timeline.turns import RequestEvent, Signal, Turn, TurnStatus
from everturn.turns.detached import DetachedRun
from everturn.turns.inbox import Receipt
from everturn.turns.model import Approval, EffectChange, UsageEvent
from everturn_testing.core import FixedClock


@dataclass(slots=True)
class ConversationRow:
    """One conversation, its timeline, and its lease while it is held."""

    id: ConversationId
    principal: Principal
    bundle_id: str | None = None
    title: str = ""
    state: ConversationState = ConversationState.IDLE
    fence: int = 0
    inbox_seq: int = 0
    cursor: EventCursor = ORIGIN
    blocks: list[Block] = field(default_factory=list[Block])
    artifacts: list[Artifact] = field(default_factory=list[Artifact])
    feedback: list[Feedback] = field(default_factory=list[Feedback])
    shown_feedback: list[Feedback] = field(default_factory=list[Feedback])
    sources: dict[int, Source] = field(default_factory=dict[int, Source])
    source_texts: dict[int, str] = field(default_factory=dict[int, str])
    lease_owner: str | None = None
    lease_began_s: float = 0.0
    lease_ends_s: float = 0.0

    @property
    def next_seq(self) -> int:
        return len(self.blocks) + 1

    @property
    def last_hash(self) -> str:
        return self.blocks[-1].hash if self.blocks else GENESIS_HASH


@dataclass(slots=True)
class TurnRow:
    """One turn; `turn` is replaced whenever it changes."""

    turn: Turn
    principal: Principal
    lane: Lane
    roles: frozenset[Role]
    announced: bool = False
    rung: int | None = None
    """Its position among all turns whose doorbell was rung; None while its tenant's share of the lane is used up."""


@dataclass(slots=True)
class SignalRow:
    """One signal; `signal` is replaced whenever it changes."""

    signal: Signal
    conversation_id: ConversationId
    inbox_seq: int


@dataclass(slots=True)
class ApprovalRow:
    """One question; `approval` is replaced whenever it changes."""

    approval: Approval
    turn_id: TurnId
    expires_at: datetime


@dataclass(slots=True)
class DetachedRow:
    """One detached run; `run` is replaced whenever it changes."""

    run: DetachedRun
    conversation_id: ConversationId
    holder: str
    held_until_s: float
    began_s: float
    ends_by_s: float


@dataclass(frozen=True, slots=True)
class UsedKey:
    """An idempotency key and the first answer."""

    request_hash: str
    receipt: Receipt


class MemoryPlatform:
    """Owns the rows; only the in-memory drivers change them, tests read them."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or FixedClock()
        self.conversations: dict[ConversationId, ConversationRow] = {}
        self.turns: dict[TurnId, TurnRow] = {}
        self.signals: dict[SignalId, SignalRow] = {}
        self.effects: dict[tuple[TurnId, CallId], EffectChange] = {}
        self.usage: list[tuple[TurnId, UsageEvent]] = []
        self.approvals: dict[ApprovalId, ApprovalRow] = {}
        self.detached: dict[tuple[TurnId, CallId], DetachedRow] = {}
        self.revoked: set[str] = set()
        self.skills_revision = 0
        """Of the skills of every project."""
        self.keys: dict[tuple[str, str, str, str, str], UsedKey] = {}
        self._rings = count(1)

    def conversation(self, principal: Principal, conversation_id: ConversationId) -> ConversationRow:
        row = self.conversations.get(conversation_id)
        if row is None or not same_owner(row.principal, principal):
            raise NotFound(conversation_id)
        return row

    def turn(self, principal: Principal, turn_id: TurnId) -> TurnRow:
        row = self.turns.get(turn_id)
        if row is None or not same_owner(row.principal, principal):
            raise NotFound(turn_id)
        return row

    def turns_of(self, conversation_id: ConversationId) -> list[TurnRow]:
        rows = [row for row in self.turns.values() if row.turn.conversation_id == conversation_id]
        return sorted(rows, key=lambda row: row.turn.ordinal)

    def waiting(self, lane: Lane) -> list[TurnRow]:
        """The queued turns of a lane, oldest first."""
        return [row for row in self.turns.values() if row.lane is lane and row.turn.status is TurnStatus.QUEUED]

    def ring(self, row: TurnRow) -> None:
        """Ring its doorbell for the first time since it waits."""
        row.rung = next(self._rings)

    def try_ring(self, row: TurnRow, share: int) -> bool:
        """Ring unless the tenant's share of the lane is used up, or an older turn of the tenant waits for a place
        there."""
        own = [other for other in self.waiting(row.lane) if other.principal.tenant == row.principal.tenant]
        rung = [other.rung is not None for other in own]
        if sum(rung) >= share or not all(rung[: own.index(row)]):
            return False
        self.ring(row)
        return True

    def ring_next(self, conversation_id: ConversationId, share: int) -> None:
        """Fill the places of the conversation's tenant on each lane, oldest turns first."""
        tenant = self.conversations[conversation_id].principal.tenant
        for row in list(self.turns.values()):
            if row.principal.tenant == tenant and row.rung is None and row.turn.status is TurnStatus.QUEUED:
                self.try_ring(row, share)

    def end_lease(self, row: ConversationRow) -> None:
        """End the lease of the conversation; its duration is added to the turn that runs under it."""
        running = self.open_turn(row.id)
        if row.lease_owner is not None and running is not None and running.turn.status is TurnStatus.RUNNING:
            held_s = max(0.0, min(row.lease_ends_s, self.clock.monotonic()) - row.lease_began_s)
            running.turn = replace(running.turn, leased_s=running.turn.leased_s + held_s)
        row.lease_owner = None

    def open_turn(self, conversation_id: ConversationId) -> TurnRow | None:
        return next((row for row in self.turns_of(conversation_id) if row.turn.status.is_open), None)


def build_request_events(signals: Sequence[Signal]) -> tuple[RequestEvent, ...]:
    """The events among these, as in the request of a turn."""
    return tuple(
        RequestEvent(signal.id, signal.text, signal.event, signal.attachments) for signal in signals if signal.event
    )


def same_owner(one: Principal, other: Principal) -> bool:
    return (one.tenant, one.project, one.user_id) == (other.tenant, other.project, other.user_id)
