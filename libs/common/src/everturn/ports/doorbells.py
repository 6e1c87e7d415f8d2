"""Doorbells: Redis lists of conversation ids that tell workers where to look. Losing them loses nothing but time."""

from collections.abc import Sequence
from typing import Protocol

from everturn.model.identity import Lane
from everturn.model.ids import ConversationId


class Doorbells(Protocol):
    """All calls raise Unavailable when the wire is down; a ring after at most a second."""

    async def ring(self, lane: Lane, conversation_id: ConversationId) -> None:
        """Put the conversation at the end of the lane."""
        ...

    async def next_ring(self, lanes: Sequence[Lane], *, timeout_s: float) -> ConversationId | None:
        """The oldest id of the first lane that has one; None when the time is up."""
        ...

    async def check(self, *, limit_s: float) -> None:
        """Raise Unavailable when the wire does not answer in this time."""
        ...
