"""Where durable user memory is kept: a bounded number of rows for each person."""

from collections.abc import Sequence
from typing import Protocol

from everturn.model.identity import Principal
from everturn.model.memory.user_memories import Candidate, UserMemory
from everturn.ports.memory.search import QueryVector


class UserMemories(Protocol):
    """All calls see only the principal's own memories."""

    async def save(self, principal: Principal, memory: UserMemory, vector: QueryVector | None) -> None:
        """Keep it, or change the one with this id, which keeps its `created_at`. One that was changed later stays.

        Raises Conflict when the person has MAX_MEMORIES others.
        """
        ...

    async def forget(self, principal: Principal, memory_id: str) -> bool:
        """False when there is none with this id."""
        ...

    async def load(self, principal: Principal, memory_ids: Sequence[str]) -> tuple[UserMemory, ...]:
        """Those of these that there are."""
        ...

    async def load_hotset(self, principal: Principal, limit: int) -> tuple[UserMemory, ...]:
        """The hottest first: pinned, then salience by confidence, then the last change."""
        ...

    async def load_candidates(self, principal: Principal, near: QueryVector | None) -> tuple[Candidate, ...]:
        """All of them, with their likeness to `near` where the same encoder made both."""
        ...
