import asyncio
import math

from everturn.memory.embedder import DIMENSIONS
from everturn.memory.encoders.hashed import HashedEmbedder, hash_text


def alike(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(hash_text(one), hash_text(other), strict=True))


def test_texts_are_alike_as_far_as_they_share_words() -> None:
    assert alike("the zephyr database", "a zephyr database!") > 0.6
    assert alike("databases", "database") > 0.3
    assert abs(alike("Which storage engine?", "We picked Postgres.")) < 0.2


def test_vectors_have_length_one_or_are_zero_for_a_text_without_words() -> None:
    vector = hash_text("some words here")

    assert len(vector) == DIMENSIONS
    assert math.isclose(sum(value * value for value in vector), 1.0)
    assert set(hash_text("--- !?")) == {0.0}


async def test_it_says_that_it_is_lexical_only() -> None:
    embedder = HashedEmbedder()

    assert embedder.lexical_only
    assert await embedder.embed(["a b", "a b"]) == (hash_text("a b"),) * 2


async def test_many_texts_are_embedded_beside_the_event_loop() -> None:
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)

    await HashedEmbedder().embed(["a", "b"])

    assert turned.is_set()
