"""The fallback encoder: words and their character trigrams, hashed into a vector. It has no dependencies and ignores
meaning."""

import asyncio
import math
from collections.abc import Iterable, Sequence
from zlib import crc32

from everturn.memory.embedder import DIMENSIONS, Vector
from everturn.memory.words import find_words

NAME = "hashed-ngrams"
MAX_TEXT_CHARS = 4_000
MAX_WORDS = 400


class HashedEmbedder:
    """Texts are similar if they share words, or parts of words; a paraphrase is as distant as an unrelated text."""

    name = NAME
    lexical_only = True

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        # One text takes up to 3 ms; more must not block the event loop.
        return await asyncio.to_thread(_hash_texts, texts) if len(texts) > 1 else _hash_texts(texts)


def _hash_texts(texts: Sequence[str]) -> tuple[Vector, ...]:
    return tuple(map(hash_text, texts))


def hash_text(text: str) -> Vector:
    """A vector of length 1; zeros for a text without words."""
    sums = [0.0] * DIMENSIONS
    for feature, weight in _find_features(text[:MAX_TEXT_CHARS]):
        digest = crc32(feature.encode(errors="replace"))
        sums[(digest >> 1) % DIMENSIONS] += weight if digest & 1 else -weight
    length = math.sqrt(sum(value * value for value in sums))
    return tuple(value / length for value in sums) if length else tuple(sums)


def _find_features(text: str) -> Iterable[tuple[str, float]]:
    for word in find_words(text, limit=MAX_WORDS):
        yield word, 1.0
        marked = f"<{word}>"
        triples = len(marked) - 2
        for start in range(triples):
            yield marked[start : start + 3], 1.0 / math.sqrt(triples)
