"""Durable user memory in memory."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from everturn.core.errors import Conflict
from everturn.core.identity import Owner, Principal
from everturn.core.ids import TurnId
from everturn.memory.search import QueryVector
from everturn.memory.user_memories import MAX_MEMORIES, Candidate, ForgottenByOwner, MemoryPosition, UserMemory, hotness

_EVERYTHING = "*"
_Stored = tuple[UserMemory, QueryVector | None]


class MemoryUserMemories:
    """Implements UserMemories and MemoryBook. `begin` starts a turn; a turn without it counts as older than
    everything."""

    def __init__(self) -> None:
        self._kept: dict[Owner, dict[str, _Stored]] = {}
        self._erased: dict[Owner, dict[str, int]] = {}
        self._begun: dict[TurnId, int] = {}
        self._moment = 0

    def begin(self, turn_id: TurnId) -> None:
        """The turn starts now."""
        self._moment += 1
        self._begun[turn_id] = self._moment

    async def save(
        self,
        principal: Principal,
        memory: UserMemory,
        vector: QueryVector | None,
        *,
        turn_id: TurnId | None = None,
        instead_of: str = "",
    ) -> None:
        kept = self._of(principal)
        erased = self._erased.get(principal.owner, {})
        last = max((erased.get(each, -1) for each in (memory.id, instead_of, _EVERYTHING)), default=-1)
        if turn_id is not None and self._begun.get(turn_id, 0) <= last:
            raise ForgottenByOwner()
        if len(kept.keys() - {memory.id}) >= MAX_MEMORIES:
            raise Conflict(f"There are {MAX_MEMORIES} memories already, which is the limit.")
        if memory.id in kept:
            if kept[memory.id][0].updated_at > memory.updated_at:
                return
            memory = replace(memory, created_at=kept[memory.id][0].created_at)
        kept[memory.id] = (memory, vector)

    async def forget(self, principal: Principal, memory_id: str) -> bool:
        return self._of(principal).pop(memory_id, None) is not None

    async def erase(self, principal: Principal, memory_id: str) -> bool:
        found = self._of(principal).pop(memory_id, None) is not None
        if found:
            self._note_erased(principal, memory_id)
        return found

    async def erase_all(self, principal: Principal) -> int:
        kept = self._of(principal)
        count = len(kept)
        kept.clear()
        self._note_erased(principal, _EVERYTHING)
        return count

    async def load_page(
        self, principal: Principal, *, limit: int, after: MemoryPosition | None
    ) -> tuple[UserMemory, ...]:
        newest = sorted((memory for memory, _ in self._of(principal).values()), key=_age, reverse=True)
        behind = [each for each in newest if after is None or _age(each) < (after.updated_at, after.id)]
        return tuple(behind[:limit])

    async def load(self, principal: Principal, memory_ids: Sequence[str]) -> tuple[UserMemory, ...]:
        kept = self._of(principal)
        return tuple(kept[memory_id][0] for memory_id in memory_ids if memory_id in kept)

    async def load_hotset(self, principal: Principal, limit: int) -> tuple[UserMemory, ...]:
        return tuple(sorted((memory for memory, _ in self._of(principal).values()), key=hotness)[:limit])

    async def load_candidates(self, principal: Principal, near: QueryVector | None) -> tuple[Candidate, ...]:
        newest = sorted(self._of(principal).values(), key=lambda kept: kept[0].updated_at, reverse=True)
        return tuple(Candidate(memory, _likeness(vector, near)) for memory, vector in newest)

    def _of(self, principal: Principal) -> dict[str, _Stored]:
        return self._kept.setdefault(principal.owner, {})

    def _note_erased(self, principal: Principal, what: str) -> None:
        self._moment += 1
        self._erased.setdefault(principal.owner, {})[what] = self._moment


def _age(memory: UserMemory) -> tuple[datetime, str]:
    return memory.updated_at, memory.id


def _likeness(vector: QueryVector | None, near: QueryVector | None) -> float | None:
    if vector is None or near is None or vector.encoder != near.encoder:
        return None
    return sum(a * b for a, b in zip(vector.vector, near.vector, strict=True))
