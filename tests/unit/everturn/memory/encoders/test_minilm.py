import asyncio
import subprocess
import sys
import threading

import pytest

from everturn.memory.embedder import DIMENSIONS, EmbedderUnavailable
from everturn.memory.encoders.minilm import MAX_TEXTS, MiniLmEmbedder, build_embedder


class Weights:
    """One text a batch; its vector begins with its length."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.passes: list[int] = []

    def tokenize(self, texts):
        return [[1] * len(text) for text in texts]

    def batches(self, lengths):
        return [[index] for index in sorted(range(len(lengths)), key=lambda index: lengths[index])]

    def encode(self, batch):
        self.threads.add(threading.current_thread().name)
        self.passes.append(len(batch[0]))
        return [(float(len(ids)), *[0.0] * (DIMENSIONS - 1)) for ids in batch]


async def test_vectors_come_in_the_order_of_the_texts() -> None:
    weights = Weights()
    embedder = MiniLmEmbedder(lambda: weights)

    found = await embedder.embed(["long text", "a", "some"])

    assert [vector[0] for vector in found] == [9.0, 1.0, 4.0]
    assert threading.main_thread().name not in weights.threads


async def test_weights_are_loaded_once_and_not_before_they_are_needed() -> None:
    loads: list[Weights] = []

    def load() -> Weights:
        loads.append(Weights())
        return loads[-1]

    embedder = MiniLmEmbedder(load)
    assert loads == []
    assert await embedder.embed([]) == ()
    await asyncio.gather(embedder.embed(["a"]), embedder.embed(["b"]))

    assert len(loads) == 1


async def test_a_short_call_runs_between_passes_of_a_long_call() -> None:
    weights = Weights()
    embedder = MiniLmEmbedder(lambda: weights)
    await embedder.embed(["warm"])

    await asyncio.gather(embedder.embed(["x" * n for n in range(10, 60)]), embedder.embed(["q"]))

    assert weights.passes.index(1) < 10


async def test_weights_that_can_not_be_loaded_are_tried_again() -> None:
    tries = iter([EmbedderUnavailable("no weights"), Weights()])

    def load() -> Weights:
        found = next(tries)
        if isinstance(found, Exception):
            raise found
        return found

    embedder = MiniLmEmbedder(load)
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed(["a"])

    assert len(await embedder.embed(["a"])) == 1


async def test_a_caller_that_gives_up_leaves_the_loading_to_the_next() -> None:
    loads: list[Weights] = []
    begun, loaded = threading.Event(), threading.Event()

    def load() -> Weights:
        loads.append(Weights())
        begun.set()
        assert loaded.wait(timeout=10)
        return loads[-1]

    embedder = MiniLmEmbedder(load)
    impatient = asyncio.create_task(embedder.embed(["a"]))
    await asyncio.to_thread(begun.wait, 10)
    impatient.cancel()
    patient = asyncio.create_task(embedder.embed(["b"]))
    await asyncio.gather(impatient, return_exceptions=True)
    loaded.set()

    assert len(await patient) == 1
    assert len(loads) == 1


async def test_too_many_texts_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 512"):
        await MiniLmEmbedder(Weights).embed(["a"] * (MAX_TEXTS + 1))


async def test_the_built_encoder_uses_the_real_weights() -> None:
    one, other = await build_embedder().embed(["a cat", "a kitten"])

    assert 0.6 < sum(a * b for a, b in zip(one, other, strict=True)) < 1


def test_building_it_imports_no_numpy() -> None:
    program = (
        "import sys; from everturn.memory.encoders.minilm import build_embedder; build_embedder();"
        "sys.exit('numpy' in sys.modules or 'tokenizers' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-P", "-c", program], check=False, timeout=50).returncode == 0
