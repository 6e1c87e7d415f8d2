"""Turning texts into vectors whose inner product says how alike their meanings are."""

from collections.abc import Sequence
from typing import Protocol

from everturn.core.errors import Unavailable

DIMENSIONS = 384
"""Of every encoder, so that one column holds the vectors of all."""

Vector = tuple[float, ...]


class EmbedderUnavailable(Unavailable):
    """The encoder can't be loaded or reached now."""


class Embedder(Protocol):
    """One encoder. Vectors of different encoders can't be compared, so whatever is stored names its encoder."""

    @property
    def name(self) -> str:
        """Names the encoder and its weights; it changes whenever the vectors do."""
        ...

    @property
    def dimensions(self) -> int: ...

    @property
    def lexical_only(self) -> bool:
        """True when only texts with words in common are alike: paraphrases are not found by meaning."""
        ...

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """One vector of length 1 for each text, in order; a text without anything to encode may give zeros.

        Only the beginning of a long text counts. Raises EmbedderUnavailable.
        """
        ...
