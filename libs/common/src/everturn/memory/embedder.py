"""Converting texts into vectors whose inner product measures the similarity of their meanings."""

from collections.abc import Sequence
from typing import Protocol

from everturn.core.errors import Unavailable

DIMENSIONS = 384
"""The length of every encoder's vectors, so that one column can store the vectors of all."""

Vector = tuple[float, ...]


class EmbedderUnavailable(Unavailable):
    """The encoder can't be loaded or reached now."""


class Embedder(Protocol):
    """One encoder. Vectors of different encoders can't be compared, so stored vectors have the encoder's name."""

    @property
    def name(self) -> str:
        """Names the encoder; it changes when new vectors can't be compared with stored ones any more."""
        ...

    @property
    def lexical_only(self) -> bool:
        """True if similarity depends only on shared words: paraphrases are not found by meaning."""
        ...

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """One vector of length 1 for each text, in order; a text without anything to encode can result in zeros.

        Only the beginning of a long text counts. Raises EmbedderUnavailable.
        """
        ...
