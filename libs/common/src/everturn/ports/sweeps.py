"""What the sweeper may ask across tenants: ids only."""

from dataclasses import dataclass
from typing import Protocol

from everturn.model.identity import Lane
from everturn.model.ids import ConversationId


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
