"""Durable user memory in memory."""

from collections.abc import Sequence
from dataclasses import replace

from everturn.errors import Conflict
from everturn.model.identity import Principal
from everturn.model.memory.user_memories import MAX_MEMORIES, Candidate, UserMemory, hotness
from everturn.ports.memory.search import QueryVector

_Kept = tuple[UserMemory, QueryVector | None]


class MemoryUserMemories:
    """Implements UserMemories."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], dict[str, _Kept]] = {}

    async def save(self, principal: Principal, memory: UserMemory, vector: QueryVector | None) -> None:
        kept = self._of(principal)
        if len(kept.keys() - {memory.id}) >= MAX_MEMORIES:
            raise Conflict(f"There are {MAX_MEMORIES} memories, and no room for more.")
        if memory.id in kept:
            if kept[memory.id][0].updated_at > memory.updated_at:
                return
            memory = replace(memory, created_at=kept[memory.id][0].created_at)
        kept[memory.id] = (memory, vector)

    async def forget(self, principal: Principal, memory_id: str) -> bool:
        return self._of(principal).pop(memory_id, None) is not None

    async def load(self, principal: Principal, memory_ids: Sequence[str]) -> tuple[UserMemory, ...]:
        kept = self._of(principal)
        return tuple(kept[memory_id][0] for memory_id in memory_ids if memory_id in kept)

    async def load_hotset(self, principal: Principal, limit: int) -> tuple[UserMemory, ...]:
        return tuple(sorted((memory for memory, _ in self._of(principal).values()), key=hotness)[:limit])

    async def load_candidates(self, principal: Principal, near: QueryVector | None) -> tuple[Candidate, ...]:
        newest = sorted(self._of(principal).values(), key=lambda kept: kept[0].updated_at, reverse=True)
        return tuple(Candidate(memory, _likeness(vector, near)) for memory, vector in newest)

    def _of(self, principal: Principal) -> dict[str, _Kept]:
        return self._kept.setdefault((principal.tenant, principal.project, principal.user_id), {})


def _likeness(vector: QueryVector | None, near: QueryVector | None) -> float | None:
    if vector is None or near is None or vector.encoder != near.encoder:
        return None
    return sum(a * b for a, b in zip(vector.vector, near.vector, strict=True))
