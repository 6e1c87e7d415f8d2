"""Durable user memory: what a person wants remembered for good, beyond any conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from everturn.model.memory.words import find_words, fold

MAX_MEMORIES = 500
"""Of one person; so few that all of them are compared with a question."""
MAX_MEMORY_CHARS = 1_000
MAX_LABELS = 8
MAX_LABEL_CHARS = 40
RANK_K = 60
"""How fast a place in an order loses its worth when orders are joined."""


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
    """A memory and how alike its meaning is to a question; None where that can't be compared."""

    memory: UserMemory
    likeness: float | None


def make_memory_id(text: str) -> str:
    """The same for texts that differ in case, blanks and accents only."""
    return "mem_" + sha256(" ".join(fold(text).split()).encode(errors="replace")).hexdigest()[:20]


def rank_memories(candidates: Sequence[Candidate], question: str) -> list[UserMemory]:
    """The best first: by meaning and by the number of words in common, joined by reciprocal rank; then the newest.

    Without anything to go by, pinned ones come first, then what matters most.
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
