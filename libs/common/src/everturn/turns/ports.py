"""What a lease holder asks of a database: leases, timelines, approvals, effects of tools, sweeps; and turns to read."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.core.errors import Conflict
from everturn.core.identity import Lane, Principal
from everturn.core.ids import CallId, ConversationId, TurnId
from everturn.core.leases import Claim, ClaimBounds, Deferred, EventCursor, Lease, SlotKind
from everturn.events.turn_view import TurnPage
from everturn.feedback.model import Feedback
from everturn.timeline.blocks import Block
from everturn.timeline.sources import Source
from everturn.timeline.turns import Signal, Turn, TurnUsage
from everturn.turns.approvals import Approval
from everturn.turns.commits import Commit, Effect, EffectState


class Approvals(Protocol):
    """Rows are written by Timelines.commit (questions) and Inbox.accept_signal (answers); Sweeps lets them expire."""

    async def load_deadline(self, *, timeout_s: float) -> datetime:
        """When a question of now expires, by the database's clock."""
        ...

    async def load_of_turn(self, principal: Principal, turn_id: TurnId) -> tuple[Approval, ...]:
        """All that were asked in the turn, oldest first."""
        ...

    async def try_park(self, lease: Lease) -> bool:
        """Hand the lease back and let the running turn wait, with no attempt counted against it.

        False, and the lease is as before, when it was lost, when nothing is pending, or when an answer, a steer or a
        cancel is there that no commit has told of: the turn has to look first. What is said later wakes it.
        After Unavailable it may be tried again: a turn that waits since then gives True once more.
        """
        ...


# The ledger of effects that programs cause: a call that is not pure has its row before it begins, and happens once.

MAX_RESULT_CHARS = 64 * 1024
"""Of a reply that is kept for a repetition."""


@dataclass(frozen=True, slots=True)
class EffectKey:
    """One call of a run, the same when the run is repeated.

    `occurrence` counts from 1 the calls of the run with this tool and these arguments; tries that were not
    begun because the lease was unsure don't count.
    """

    turn_id: TurnId
    run_call_id: CallId
    tool_id: str
    args_hash: str
    occurrence: int

    @property
    def row_id(self) -> str:
        """Stands where a call of the loop has its own id."""
        told = f"{self.tool_id}\n{self.args_hash}\n{self.occurrence}"
        return f"{self.run_call_id}/{hashlib.sha256(told.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """What is known of a call that was begun before. `reply` is empty where none was kept."""

    state: EffectState
    reply: str


class EffectLedger(Protocol):
    """Every write names the lease's fence and raises StaleFence when it is no longer the latest; Unavailable."""

    async def begin(self, lease: Lease, key: EffectKey, effect: Effect) -> EffectRecord | None:
        """Write the intent, once. None: it is written, nobody began this call before. Else what is known of it."""
        ...

    async def settle(self, lease: Lease, key: EffectKey, state: EffectState, reply: str) -> None:
        """Say how a begun call ended; `reply` is ASCII of at most MAX_RESULT_CHARS, or empty."""
        ...


# Owning a conversation: claim, renew, hand back. Database time decides, never a worker's clock.


class Leases(Protocol):
    """Leases of one worker process, which is named in the constructor; they last 15 s unless renewed."""

    async def try_claim(self, conversation_id: ConversationId) -> Claim | None:
        """Take the lease with the next fence. None when another worker holds it, or there is nothing to do.

        An open turn becomes RUNNING; if it was RUNNING already (its worker died) `attempt` grows by one.
        """
        ...

    async def renew(self, held: Mapping[ConversationId, int]) -> Mapping[ConversationId, int | None]:
        """Renew all leases (conversation -> fence) in one statement; gives conversation -> inbox_seq of those held.

        None in place of the inbox_seq: the lease is still held, but was not renewed, because its row was busy.
        """
        ...

    async def release(self, lease: Lease, *, requeue: bool) -> bool:
        """Hand back. With `requeue` the open turn becomes QUEUED again (drain; its attempt does not grow).

        False when the lease was lost already. Without `requeue` no turn may be running.
        """
        ...


class FairClaims(Protocol):
    """Claims of one worker within the bounds of running turns, which all workers together keep."""

    async def try_claim_fairly(
        self, conversation_id: ConversationId, bounds: ClaimBounds, slot: SlotKind
    ) -> Claim | Deferred | None:
        """As Leases.try_claim, where the queued turn may take a slot of this kind.

        For an ordinary slot: Deferred while another turn waits that is less over the bounds; nothing else is refused,
        so that no slot stays empty while a turn waits. For an extra slot: None unless `find_extra_turn` would name it.
        """
        ...

    async def find_extra_turn(self, bounds: ClaimBounds, slot: SlotKind) -> ConversationId | None:
        """The waiting turn with the best right to an extra slot: of a user below the bound, and without a running turn
        where the slot is a reserved one. The turns of one tenant on one lane may not hold more extra slots than are
        free."""
        ...


# What the sweeper may ask across tenants: ids only.


@dataclass(frozen=True, slots=True)
class Ring:
    """A doorbell to ring."""

    conversation_id: ConversationId
    lane: Lane


class Sweeps(Protocol):
    """Bounded: at most 200 ids a call."""

    async def due_doorbells(self, *, takeovers: bool) -> tuple[Ring, ...]:
        """Queued turns whose doorbell is older than 5 s (doubling to 60 s), open turns whose lease expired, and ended
        turns that nobody announced and nobody holds. Marks them as rung now, within each tenant's share of a lane.
        Without `takeovers` turns of expired leases are left out. A turn that waits for a person is left alone until its
        approval's time is up: that expires here, and the turn is rung for."""
        ...

    async def next_of_tenant(self, conversation_id: ConversationId) -> tuple[Ring, ...]:
        """After a turn of this conversation ended: the tenant's next queued turn without a doorbell, marked as rung."""
        ...


# The append-only timeline of a conversation, and the one transaction in which its lease holder writes.


class InboxMoved(Conflict):
    """Something was said to the turn while it was ending."""

    def __init__(self, inbox_seq: int) -> None:
        super().__init__(f"The inbox is at {inbox_seq}.")
        self.inbox_seq = inbox_seq


class Timelines(Protocol):
    """Every write names the lease's fence and raises StaleFence when it is no longer the latest."""

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, *, after_seq: int = 0
    ) -> tuple[Block, ...]:
        """All blocks with a larger `seq`, in order."""
        ...

    async def load_recent_blocks(self, principal: Principal, conversation_id: ConversationId) -> tuple[Block, ...]:
        """The blocks behind the range of the last summary of scope `history`, in order; all when there is none.

        What they leave out the summary stands for; it is among them, and so are all blocks of its turn.
        """
        ...

    async def load_turn(self, principal: Principal, turn_id: TurnId) -> Turn: ...

    async def load_signals(self, principal: Principal, turn_id: TurnId) -> tuple[Signal, ...]:
        """All signals of the turn, in whatever state, in the order they came; at most MAX_TURN_SIGNALS."""
        ...

    async def load_title(self, principal: Principal, conversation_id: ConversationId) -> str:
        """The conversation's title; empty while it has none."""
        ...

    async def save_title(self, lease: Lease, title: str) -> bool:
        """Give the conversation a title unless it has one; whether it has this one now. Raises StaleFence."""
        ...

    async def load_usage(self, principal: Principal, turn_id: TurnId) -> TurnUsage:
        """The sum of the turn's usage events so far."""
        ...

    async def load_fresh_feedback(self, principal: Principal, conversation_id: ConversationId) -> tuple[Feedback, ...]:
        """Feedback on turns of this conversation that no block tells of yet, oldest first."""
        ...

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The rows of the conversation's source pool by `sid`, without their whole texts."""
        ...

    async def load_source_text(self, principal: Principal, conversation_id: ConversationId, sid: int) -> str:
        """The whole text of one source; empty if none was fetched. Raises NotFound when there is no such row."""
        ...

    async def commit(self, lease: Lease, commit: Commit) -> int:
        """Write all of it or nothing; returns the conversation's inbox_seq.

        Raises StaleFence; InboxMoved when `commit.close` has seen less than the database, or a signal that the commit
        applies was edited or taken back meanwhile, or an approval that it withdraws was settled; OutOfOrder when the
        blocks don't follow the last stored one. A close withdraws what is still pending.
        After Unavailable the same commit may be tried again: if it had been written, it is not written twice.
        A close sets the turn's and the conversation's state, settles effects that are still intended and resets
        `attempt`; any other commit sets `attempt` to 0.
        """
        ...

    async def load_announcing(self, lease: Lease, turn_id: TurnId) -> int:
        """The last number that was saved since the turn ended, 0 without one. Raises StaleFence."""
        ...

    async def save_announcing(self, lease: Lease, turn_id: TurnId, tries: int) -> None:
        """Note that so many tries to tell of an ended turn have begun: one less is how many workers died of it.

        0 says that the last try failed, but its worker lives. A number, so that it may be saved again when the answer
        was lost. Raises StaleFence.
        """
        ...

    async def save_announced(self, lease: Lease, turn_id: TurnId, cursor: EventCursor) -> None:
        """The terminal event of the turn has been published. `cursor` is the last id given out, which clients may have.

        It must outlive the stream: a Redis that comes back without its last second has lost it.
        """
        ...


# Reading conversations back: the rows from which the client's state is built, in one consistent read.

PAGE_BYTES = 4 * 1024 * 1024
"""Of all that is stored of the turns of one page; a single larger turn is a page of its own. The process that answers
holds it a few times over."""


class Turns(Protocol):
    """All calls see only the principal's own conversations; another's id is NotFound."""

    async def load_page(
        self,
        principal: Principal,
        conversation_id: ConversationId,
        *,
        turn_ids: Sequence[TurnId] | None = None,
        cursor: str | None = None,
        limit: int = 20,
        judged: bool = False,
    ) -> TurnPage:
        """The newest of all turns, of those before `cursor`, of the named ones, and of those with feedback (`judged`).

        As many as fit into `limit` and PAGE_BYTES. Raises BadCursor.
        """
        ...

    async def load_sources(self, principal: Principal, conversation_id: ConversationId) -> tuple[Source, ...]:
        """The source pool by `sid`, without whole texts; empty where there is none to see."""
        ...

    async def load_ordinal(self, principal: Principal, conversation_id: ConversationId, turn_id: TurnId) -> int:
        """The turn's place in this conversation, from 1. Raises NotFound when it is none of its turns."""
        ...

    async def load_blocks(
        self, principal: Principal, conversation_id: ConversationId, seqs: Sequence[int]
    ) -> tuple[Block, ...]:
        """The blocks with these numbers, in order; those that there are."""
        ...
