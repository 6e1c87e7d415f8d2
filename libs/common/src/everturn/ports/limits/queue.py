"""How long the queue is."""

from dataclasses import dataclass
from typing import Protocol

from everturn.model.identity import Lane


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Turns that wait: all, those of one tenant on one lane, and of how many tenants all are."""

    waiting: int
    of_tenant: int
    tenants: int


class Queue(Protocol):
    """Numbers only: nothing of another tenant is told."""

    async def load_depth(self, tenant: str, lane: Lane) -> QueueDepth:
        """The queue as it is now."""
        ...
