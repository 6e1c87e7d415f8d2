"""How long the queue is, and where in it a turn stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from everturn.model.identity import Lane, Principal
from everturn.model.ids import ConversationId, TurnId
from everturn.model.limits.queue_position import QueuePosition


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Turns that wait: all, those of one tenant on one lane, and of how many tenants all are."""

    waiting: int
    of_tenant: int
    tenants: int


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """Turns that wait on one lane, and how many seconds ago the oldest of them was accepted."""

    waiting: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """The turn of a conversation that waits, and where."""

    turn_id: TurnId
    position: QueuePosition


Owned = tuple[Principal, ConversationId]
"""A conversation, and whose it is said to be."""


class Queue(Protocol):
    """Numbers only: nothing of another tenant is told."""

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        """The queue as it is now."""
        ...

    async def load_lanes(self) -> Mapping[Lane, LaneDepth]:
        """All lanes on which a turn waits, whosever it is."""
        ...

    async def load_positions(self, asked: Sequence[Owned]) -> Mapping[ConversationId, WaitingTurn]:
        """Where the turns of these conversations stand now, without those where none waits, or that are another's."""
        ...
