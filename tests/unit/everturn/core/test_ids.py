"""Ids sort by creation time, name their kind, and are distinguished from any other text."""

import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.ids import RandomIds, is_id, make_id

PREFIXES = ("conv", "turn", "call", "art", "sig", "plan", "exec")
moments = st.integers(0, (1 << 48) - 1)
entropies = st.binary(min_size=10, max_size=16)


@given(prefix=st.sampled_from(PREFIXES), unix_ms=moments, entropy=entropies)
def test_every_id_is_a_uuid_of_version_7_with_a_prefix_and_without_a_dot(
    prefix: str, unix_ms: int, entropy: bytes
) -> None:
    made = make_id(prefix, unix_ms, entropy)

    value = uuid.UUID(made.removeprefix(f"{prefix}_"))
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert value.int >> 80 == unix_ms
    assert is_id(made, prefix)
    assert "." not in made


@given(one=moments, other=moments, entropy=entropies)
def test_ids_sort_by_birth(one: int, other: int, entropy: bytes) -> None:
    if one < other:
        assert make_id("conv", one, entropy) < make_id("conv", other, b"\x00" * 10)


@given(st.text())
def test_other_texts_are_no_ids(text: str) -> None:
    assert not is_id(text, "conv")


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.upper(),
        lambda made: made + " ",
        lambda made: made + "\n",
        lambda made: "turn" + made[4:],
        lambda made: made.replace("-7", "-4", 1),
        lambda made: made[:-1] + "\u0661",
        lambda made: made.replace("-", ""),
        lambda made: made + "*",
    ],
)
def test_a_changed_id_is_no_id(change: Callable[[str], str]) -> None:
    made = make_id("conv", 1_772_366_400_000, b"\x00" * 10)

    assert is_id(made, "conv")
    assert not is_id(change(made), "conv")


def test_random_ids_take_time_and_entropy_from_outside() -> None:
    ids = RandomIds(lambda: 1_772_366_400_000, lambda count: b"\x01" * count)

    made = [ids.conversation(), ids.turn(), ids.call(), ids.artifact(), ids.signal(), ids.plan()]

    assert [one.partition("_")[0] for one in made] == ["conv", "turn", "call", "art", "sig", "plan"]
    assert len({one.partition("_")[2] for one in made}) == 1


def test_two_random_ids_differ() -> None:
    ids = RandomIds(lambda: 0)

    assert ids.turn() != ids.turn()
