"""The local encoder: all-MiniLM-L6-v2 in this process, loaded on first use and run in a thread."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from everturn.memory.embedder import Vector

NAME = "minilm-l6-v2"
MAX_TEXTS = 512
"""Of one call."""


class Weights(Protocol):
    """The loaded tokenizer and encoder. All calls block."""

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]: ...
    def batches(self, lengths: Sequence[int]) -> list[list[int]]: ...
    def encode(self, batch: Sequence[Sequence[int]]) -> list[Vector]: ...


def build_embedder() -> "MiniLmEmbedder":
    """Costs nothing until the first text arrives: numpy and the weights are loaded then."""
    return MiniLmEmbedder(_load)


class MiniLmEmbedder:
    """Loads and encodes in its own thread, in the order of the calls.

    Between two passes of a long call, a short call of another caller can run. Cancelling a caller does not affect the
    thread: loading continues for the next caller, and there is never a second pass at the same time.
    """

    name = NAME
    lexical_only = False

    def __init__(self, load: Callable[[], Weights]) -> None:
        self._load = load
        self._loaded: Weights | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minilm")

    def close(self) -> None:
        """End the thread after its present pass. Nothing may be called after that."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        if not texts:
            return ()
        if len(texts) > MAX_TEXTS:
            raise ValueError(f"{len(texts)} texts; one call accepts at most {MAX_TEXTS}")
        loop = asyncio.get_running_loop()
        weights = await loop.run_in_executor(self._thread, self._open)
        tokens = await loop.run_in_executor(self._thread, weights.tokenize, texts)
        found: dict[int, Vector] = {}
        for batch in weights.batches([len(ids) for ids in tokens]):
            vectors = await loop.run_in_executor(self._thread, weights.encode, [tokens[index] for index in batch])
            found.update(zip(batch, vectors, strict=True))
        return tuple(found[index] for index in range(len(texts)))

    def _open(self) -> Weights:
        """Runs in the thread; only it sets `_loaded`."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded


def _load() -> Weights:
    # One thread: more would compete with the turns for processors, and are slower for matrices this small.
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
    from everturn.memory.encoders.bert import load_minilm

    return load_minilm()
