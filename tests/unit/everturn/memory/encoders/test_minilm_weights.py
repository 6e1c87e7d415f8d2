import math

import pytest

from everturn.memory.embedder import DIMENSIONS
from everturn.memory.encoders.minilm_model import MiniLm, load_minilm


@pytest.fixture(scope="module")
def minilm() -> MiniLm:
    return load_minilm()


def embed(minilm: MiniLm, *texts: str):
    return minilm.encode(texts)


def alike(one, other) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_similarities_of_known_sentences_are_near_the_published_ones(minilm: MiniLm) -> None:
    source, *others = embed(
        minilm,
        "That is a happy person",
        "That is a happy dog",
        "That is a very happy person",
        "Today is a sunny day",
    )

    assert [alike(source, other) for other in others] == pytest.approx([0.695, 0.943, 0.257], abs=0.02)


def test_vectors_have_length_one_and_do_not_change(minilm: MiniLm) -> None:
    texts = ("", "one", "Über den Wolken", "数据库", "a " * 5_000, "\ud800")

    first, second = embed(minilm, *texts), embed(minilm, *texts)

    assert first == second
    assert all(len(vector) == DIMENSIONS for vector in first)
    assert [math.sqrt(alike(vector, vector)) for vector in first] == pytest.approx([1.0] * len(texts), abs=1e-5)


def test_a_paraphrase_without_a_common_word_is_nearer_than_something_else(minilm: MiniLm) -> None:
    asked, meant, other = embed(
        minilm,
        "Which storage engine did we pick?",
        "The team settled on Postgres as its database.",
        "The cake needs three eggs and some sugar.",
    )

    assert alike(asked, meant) > alike(asked, other) + 0.15


def test_only_the_first_256_tokens_count(minilm: MiniLm) -> None:
    # Two of them are the special ones around the text.
    one, other, shorter = embed(minilm, "word " * 254, "word " * 254 + "bird " * 500, "word " * 253)

    assert one == other
    assert one != shorter
