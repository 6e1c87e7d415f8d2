"""The database as a lease holder uses it: leases, timelines, approvals, effects of tools, sweeps; and reading
turns and blocks."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.conversations.model import Conversation
from everturn.core.errors import Conflict
from everturn.core.identity import Lane, Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.events.cursor import EventCursor
from everturn.events.turn_view import TurnPage
from everturn.queue.model import WaitingTurn
from everturn.timeline.blocks import Block, BlockType
from everturn.timeline.sources import Source
from everturn.timeline.turns import Signal, Turn
from everturn.turns.model import (
    Approval,
    Claim,
    ClaimBounds,
    Commit,
    Deferred,
    Effect,
    EffectState,
    Lease,
    SlotKind,
    TurnStart,
)

MAX_EFFECT_REPLY_CHARS = 64 * 1024
"""Maximum length of the stored reply of an effect, which is returned if the call is repeated."""

PAGE_BYTES = 4 * 1024 * 1024
"""Total stored size of the turns of one page; a single larger turn gets its own page. The answering process holds a few
copies of it. Clients get up to twice as much, because a view of a turn has its answer as text and as result."""

BLOCK_PAGE_BYTES = 2 * 1024 * 1024
"""Limit for the stored bodies of one page of blocks; the last block of a page can exceed it."""


class Approvals(Protocol):
    """Timelines.commit writes the approval requests, Inbox.accept_signal the answers; Sweeps expires them."""

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        """When an approval requested now expires, by the database's clock."""
        ...

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        """All approvals of the turn, oldest first."""
        ...

    async def try_park(self, lease: Lease) -> bool:
        """Release the lease and make the running turn wait for a person or a detached run; no attempt is counted.

        Returns False and keeps the lease when the lease was lost, when there is nothing to wait for, or when an answer,
        a steer or a cancel has arrived that no commit contains yet: the turn must process it first. Later signals of
        these kinds wake the turn. After Unavailable the call can be retried: for a turn that already waits it returns
        True.
        """
        ...


@dataclass(frozen=True, slots=True)
class EffectKey:
    """One call of a run; a repeated run has the same keys.

    `occurrence` counts from 1 the calls of the run with this tool and these arguments. Attempts that did not begin
    because the lease was unsure are not counted.
    """

    turn_id: TurnId
    run_call_id: CallId
    tool_id: str
    args_hash: str
    occurrence: int

    @property
    def row_id(self) -> str:
        """Used in place of the call id that a call of the loop has."""
        identity = f"{self.tool_id}\n{self.args_hash}\n{self.occurrence}"
        return f"{self.run_call_id}/{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """What is known of an earlier call. `reply` is empty when none was stored."""

    state: EffectState
    reply: str


class EffectLedger(Protocol):
    """Every write names the lease's fence. Raises StaleFence when it is no longer the latest, and Unavailable. A call
    that is not pure has a row before it begins, and runs once."""

    async def begin(self, lease: Lease, key: EffectKey, effect: Effect) -> EffectRecord | None:
        """Write the intent, once. Returns None when it was written now, otherwise the record of the earlier call."""
        ...

    async def settle(self, lease: Lease, key: EffectKey, state: EffectState, reply: str) -> None:
        """Record how a begun call ended; `reply` is ASCII of at most MAX_EFFECT_REPLY_CHARS, or empty."""
        ...


class Leases(Protocol):
    """Leases of one worker process, named in the constructor; they last 15 s unless renewed. Database time decides,
    never a worker's clock."""

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        """Claim the lease with the next fence. None when another worker holds it, or there is nothing to do.

        The fence grows in the conversation's row, which every append also locks. If a turn is queued
        or running, it and its conversation become running; if it was running already (its worker died), `attempt` grows
        by one.
        """
        ...

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
        """Renew all leases (conversation -> fence) in one statement; returns conversation -> inbox_seq of those still
        held.

        None instead of the inbox_seq means that the lease is held, but was not renewed because its row was locked.
        """
        ...

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        """Release the lease. With `requeue` the open turn becomes QUEUED again (drain; its attempt does not grow).

        Returns whether the conversation has work, so that its doorbell must be rung: doorbells rung while it was leased
        were in vain. Returns False if another worker has claimed it since. Without `requeue` no turn may be running.
        """
        ...

    async def load_announce_attempts(self, lease: Lease, turn_id: TurnId) -> int:
        """How many attempts to announce the ended turn have begun since the turn ended, or since an attempt last failed
        without killing its worker. Raises StaleFence."""
        ...

    async def save_announce_attempts(self, lease: Lease, turn_id: TurnId, attempts: int) -> None:
        """Save the number that `load_announce_attempts` returns: `attempts` have begun, and all but the last have
        killed their workers.

        0 means that the last attempt failed, but its worker survived. It is an absolute number, so that saving can be
        retried after a lost answer. Raises StaleFence.
        """
        ...

    async def mark_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        """Record that the turn's terminal event was published. `cursor` is the last id issued, which clients can have
        seen. Raises StaleFence.

        Stored in Postgres, because a Redis that restarts can lose its last second of writes.
        """
        ...

    async def release_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> bool:
        """Do what `mark_announced` does, and then `release` without `requeue`, in one transaction.

        Raises StaleFence if the fence is stale and the end is not saved as announced yet.
        """
        ...


class FairClaims(Protocol):
    """Claims of one worker within the limits on running turns that all workers share."""

    async def try_claim_fairly(
        self, conversation_id: ConversationId, bounds: ClaimBounds, slot: SlotKind
    ) -> Claim | Deferred | None:
        """As Leases.try_claim, if the queued turn can use a slot of this kind.

        Ordinary slot: returns Deferred while another waiting turn exceeds the bounds by less; nothing else is rejected,
        so that no slot stays empty while a turn waits. Extra slot: returns None unless `find_extra_turn` would choose
        this turn.
        """
        ...

    async def find_extra_turn(self, bounds: ClaimBounds, slot: SlotKind) -> ConversationId | None:
        """The waiting turn with the highest priority for an extra slot: its user is below the bound and, for a reserved
        slot, has no running turn. The turns of a tenant on a lane get another extra slot only while they hold
        fewer than are free."""
        ...


@dataclass(frozen=True, slots=True)
class Ring:
    """A doorbell to ring."""

    conversation_id: ConversationId
    lane: Lane


class Sweeps(Protocol):
    """Finds doorbells to ring in all tenants, and marks their turns as rung, so that no other worker rings them now.

    Each call returns the ids of at most 200 conversations, and no content.
    """

    async def claim_due_doorbells(self, *, takeovers: bool) -> tuple[Ring, ...]:
        """The doorbells of turns that were not rung within 5 s, which doubles with each ring up to 60 s: queued turns
        with a place in their tenant's share of a lane, running turns whose lease expired, and ended turns that are
        neither announced nor leased.

        Without `takeovers`, turns with an expired lease are left out; with it, the expired leases of conversations
        without work are deleted. Approvals that are due expire here first, and the turns that waited for them become
        queued.
        """
        ...

    async def claim_next_doorbells(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        """The doorbells of the oldest queued turns of this conversation's tenant that have no place on their lane, as
        many as there are free places in the tenant's share. Called after a turn of the conversation was claimed.

        Needed only if TurnStart.may_have_next: a turn accepted later rings its own doorbell.
        """
        ...


class InboxMoved(Conflict):
    """The signals or approvals have changed since this worker read them; read them again."""

    def __init__(self, inbox_seq: int) -> None:
        super().__init__(f"The inbox is at {inbox_seq}.")
        self.inbox_seq = inbox_seq


class Timelines(Protocol):
    """The append-only timeline of a conversation, and the one transaction in which its lease holder writes.

    Every write names the lease's fence and raises StaleFence when it is no longer the latest.
    """

    async def load_start(
        self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId, *, with_blocks: bool = True
    ) -> TurnStart:
        """What a worker needs to begin or resume the turn. Raises NotFound when there is no such turn."""
        ...

    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        """The blocks after the range of the last summary of scope `history`, in order; all when there is none.

        The summary replaces the blocks left out. It is included, and so are all blocks of its turn.
        """
        ...

    async def load_turn(self, principal: Principal, turn_id: TurnId) -> Turn: ...

    async def load_signals(self, principal: Principal, turn_id: TurnId) -> tuple[Signal, ...]:
        """All signals of the turn, in any state, in order of arrival; at most MAX_TURN_SIGNALS."""
        ...

    async def load_title(self, principal: Principal, conversation_id: ConversationId) -> str:
        """The conversation's title; empty while it has none."""
        ...

    async def save_title(self, lease: Lease, title: str) -> bool:
        """Set the conversation's title if it has none; returns whether this is now its title. Raises StaleFence."""
        ...

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The conversation's source rows by `sid`, without their full texts."""
        ...

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        """The full text of one source; empty if none was fetched. Raises NotFound when there is no such row."""
        ...

    async def commit(self, lease: Lease, commit: Commit) -> int:
        """Write all of it or nothing; returns the conversation's inbox_seq.

        Checking the fence locks the conversation's row first, so its inbox can't change. All rows are written in one
        transaction.

        Raises StaleFence. Raises InboxMoved when `commit.close` has seen less than the database, when a signal that the
        commit applies was edited or retracted meanwhile, or when an approval that it withdraws was settled. Raises
        OutOfOrder when the blocks don't follow the last stored one. After Unavailable a commit with blocks can be
        retried: it is never written twice. Every commit sets `attempt` to 0. A close also withdraws pending approvals,
        sets the state of the turn and the conversation, and settles effects that are still intended.
        """
        ...


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """A conversation, its open turn, and that turn's queue position while it is queued.

    The position is not read in the same snapshot: `waiting` can be None although the conversation has just been queued.
    """

    conversation: Conversation
    open_turn_id: TurnId | None
    waiting: WaitingTurn | None


class TurnPages(Protocol):
    """The rows from which the client's state is built, in one consistent read.

    All calls see only the principal's own conversations; any other id raises NotFound.
    """

    async def load_page(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        *,
        turn_ids: Sequence[TurnId] | None = None,
        cursor: str | None = None,
        limit: int = 20,
        with_feedback: bool = False,
        max_bytes: int = PAGE_BYTES,
    ) -> TurnPage:
        """The newest of all turns, of those before `cursor`, or of the named ones; with `with_feedback`, only those
        that have feedback.

        As many as fit into `limit` and `max_bytes` of stored text, but at least one. Raises BadCursor.
        """
        ...


class Turns(TurnPages, Protocol):
    """What else an ingress reads of turns."""

    async def load_status(self, principal: Principal, conversation_id: ConversationId) -> ConversationStatus:
        """The conversation without its turns. For ingresses only: a worker's database role can't read queue
        positions."""
        ...

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The sources by `sid`, without full texts; empty when none is visible."""
        ...

    async def load_ordinal(self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId) -> int:
        """The turn's place in this conversation, from 1. Raises NotFound when the turn belongs to another one."""
        ...

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, seqs: Sequence[int]
    ) -> tuple[Block, ...]:
        """The existing blocks with these numbers, in order."""
        ...


@dataclass(frozen=True, slots=True)
class BlockPage:
    """Blocks of a turn, in order. `more` means that the turn has later ones."""

    blocks: tuple[Block, ...]
    more: bool


class ConversationReader(Protocol):
    """All calls see only the principal's own conversations; any other appears to have no blocks."""

    async def load_turn_blocks(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        after_seq: int = 0,
        max_bytes: int = BLOCK_PAGE_BYTES,
    ) -> BlockPage:
        """The turn's blocks with a larger `seq`, until their bodies have `max_bytes` bytes together; at least one."""
        ...

    async def load_blocks_before(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        before_seq: int,
        kinds: Collection[BlockType],
        *,
        max_bytes: int = BLOCK_PAGE_BYTES,
    ) -> BlockPage:
        """The conversation's blocks of these types with a smaller `seq`, in order: the newest that have `max_bytes`
        bytes together. `more` means that there are older ones."""
        ...

    async def try_load_last_block(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        turn_id: TurnId,
        *,
        ref: str | None = None,
        kind: BlockType | None = None,
    ) -> Block | None:
        """The turn's last block with this ref and of this type; None matches any."""
        ...

    async def try_load_plan(self, principal: Principal, conversation_id: ConversationId, plan_id: str) -> Block | None:
        """The `react.plan` block with the newest snapshot of a plan."""
        ...
