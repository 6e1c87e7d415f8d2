"""Where durable user memory is kept: a bounded number of rows for each person."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from everturn.errors import Conflict
from everturn.model.identity import Principal
from everturn.model.ids import TurnId
from everturn.model.memory.user_memories import Candidate, UserMemory
from everturn.ports.memory.search import QueryVector


class ForgottenByOwner(Conflict):
    """The person had it forgotten while the turn was running."""


@dataclass(frozen=True, slots=True)
class MemoryPosition:
    """A place in the list of memories: behind the one with this id, which was changed then."""

    updated_at: datetime
    id: str


class UserMemories(Protocol):
    """All calls see only the principal's own memories."""

    async def save(
        self,
        principal: Principal,
        memory: UserMemory,
        vector: QueryVector | None,
        *,
        turn_id: TurnId | None = None,
        instead_of: str = "",
    ) -> None:
        """Keep it, or change the one with this id, which keeps its `created_at`. One that was changed later stays.

        Raises Conflict when the person has MAX_MEMORIES others, and ForgottenByOwner when this memory, or the one it
        takes the place of, or all of them were erased since the turn that writes it began.
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


class MemoryBook(Protocol):
    """The memories of a person as the person looks at them; all calls see only the principal's own."""

    async def load_page(
        self, principal: Principal, *, limit: int, after: MemoryPosition | None
    ) -> tuple[UserMemory, ...]:
        """At most `limit`, the last changed first, those behind `after`."""
        ...

    async def erase(self, principal: Principal, memory_id: str) -> bool:
        """Forget it at the person's own wish: no turn that runs now can write it again. False when there is none."""
        ...

    async def erase_all(self, principal: Principal) -> int:
        """Forget everything, as `erase` does. Returns how many there were."""
        ...
