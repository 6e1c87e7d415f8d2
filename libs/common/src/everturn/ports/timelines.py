"""The append-only timeline of a conversation, and the one transaction in which its lease holder writes."""

from typing import Protocol

from everturn.errors import Conflict
from everturn.model.blocks import Block
from everturn.model.commits import Commit
from everturn.model.feedback import Feedback
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.leases import EventCursor, Lease
from everturn.model.llm.sources import Source
from everturn.model.signals import Signal
from everturn.model.turns import Turn, TurnUsage


class InboxMoved(Conflict):
    """Something was said to the turn while it was ending."""

    def __init__(self, inbox_seq: int) -> None:
        super().__init__(f"The inbox is at {inbox_seq}.")
        self.inbox_seq = inbox_seq


class OutOfOrder(Conflict):
    """The blocks do not follow the last stored one."""


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
