"""User memory: what a person wants remembered permanently, beyond any conversation, and the port that stores it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Protocol

from everturn.core.errors import Conflict
from everturn.core.identity import Principal
from everturn.core.ids import TurnId
from everturn.memory.search import QueryVector
from everturn.memory.words import find_words, fold

MAX_MEMORIES = 500
"""Limit for one person; few enough to compare all of them with a question."""
MAX_MEMORY_CHARS = 1_000
MAX_LABELS = 8
MAX_LABEL_CHARS = 40
RANK_K = 60
"""The constant of reciprocal rank fusion: the larger, the slower the weight falls with the rank."""


@dataclass(frozen=True, slots=True)
class UserMemory:
    """One thing to remember. `confidence` says how sure it is, `salience` how much it matters, both from 0 to 1."""

    id: str
    text: str
    created_at: datetime
    updated_at: datetime
    labels: tuple[str, ...] = ()
    pinned: bool = False
    confidence: float = 0.8
    salience: float = 0.5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory and its similarity to a question; None if that can't be computed."""

    memory: UserMemory
    likeness: float | None


def make_memory_id(text: str) -> str:
    """The same for texts that differ only in case, blanks and accents."""
    return "mem_" + sha256(" ".join(fold(text).split()).encode(errors="replace")).hexdigest()[:20]


def rank_memories(candidates: Sequence[Candidate], question: str) -> list[UserMemory]:
    """The best first: by similarity and by the number of words in common, combined by reciprocal rank; then the
    hottest.

    If there are neither words nor vectors to compare, pinned ones are first, then the most important.
    """
    words = set(find_words(question, limit=32))
    common = {each.memory.id: len(words & set(_words_of(each.memory))) for each in candidates}
    likeness = {each.memory.id: each.likeness for each in candidates if each.likeness is not None}
    by_words = sorted((name for name, count in common.items() if count), key=lambda name: -common[name])
    by_meaning = sorted(likeness, key=lambda name: -likeness[name])
    fits: dict[str, float] = {}
    for order in (by_words, by_meaning):
        for place, name in enumerate(order, start=1):
            fits[name] = fits.get(name, 0.0) + 1 / (RANK_K + place)
    found = [each.memory for each in candidates if not words or each.memory.id in fits]
    return sorted(found, key=lambda memory: (-fits.get(memory.id, 0.0), *hotness(memory)))


def hotness(memory: UserMemory) -> tuple[bool, float, float]:
    """A sort key, hottest first: pinned, then salience by confidence, then the last change."""
    return not memory.pinned, -memory.salience * memory.confidence, -memory.updated_at.timestamp()


def _words_of(memory: UserMemory) -> tuple[str, ...]:
    return find_words(" ".join((memory.text, *memory.labels)), limit=400)


class ForgottenByOwner(Conflict):
    """The person had it forgotten while the turn was running."""


@dataclass(frozen=True, slots=True)
class MemoryPosition:
    """A position in the list of memories: after the one with this id, which was changed at this time."""

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
        """Store it, or change the one with this id, which keeps its `created_at`. A stored one with a later change is
        kept.

        Raises Conflict when the person has MAX_MEMORIES others, and ForgottenByOwner when this memory, or the one it
        replaces, or all of them were erased since the turn that writes it began.
        """
        ...

    async def forget(self, principal: Principal, memory_id: str) -> bool:
        """False when there is none with this id."""
        ...

    async def load(self, principal: Principal, memory_ids: Sequence[str]) -> tuple[UserMemory, ...]:
        """The existing ones of these."""
        ...

    async def load_hotset(self, principal: Principal, limit: int) -> tuple[UserMemory, ...]:
        """The hottest first: pinned, then salience by confidence, then the last change."""
        ...

    async def load_candidates(self, principal: Principal, near: QueryVector | None) -> tuple[Candidate, ...]:
        """All memories, with their similarity to `near` if the same encoder made both."""
        ...


class MemoryBook(Protocol):
    """The memories of a person for the person's own use; all calls see only the principal's own."""

    async def load_page(
        self, principal: Principal, *, limit: int, after: MemoryPosition | None
    ) -> tuple[UserMemory, ...]:
        """At most `limit` of those after `after`, the last changed first."""
        ...

    async def erase(self, principal: Principal, memory_id: str) -> bool:
        """Erase it at the person's request: no turn that runs now can write it again. False when there is none."""
        ...

    async def erase_all(self, principal: Principal) -> int:
        """Erase all, as `erase` does. Returns how many there were."""
        ...
