import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.json_values import JsonDepth


@pytest.mark.parametrize(
    ("text", "completed_at"),
    [
        ('{"a": [1, "]}"]} rest', 16),
        ("before {} {}", 9),
        ("no value", -1),
        ('{"a": "\\"}"', -1),
        ('"}" []', 6),
    ],
)
def test_it_finds_the_end_of_the_first_value(text: str, completed_at: int) -> None:
    assert JsonDepth().advance(text) == completed_at


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())), st.integers(1, 9))
def test_pieces_of_any_size_reach_depth_zero_exactly_at_the_end(value: dict[str, object], size: int) -> None:
    text = json.dumps(value)
    depth = JsonDepth()

    completed = [depth.advance(text[start : start + size]) for start in range(0, len(text), size)]

    assert completed[-1] == (len(text) - 1) % size + 1
    assert depth.depth == 0
    assert all(place == -1 for place in completed[:-1])


def test_it_knows_the_deepest_nesting() -> None:
    depth = JsonDepth()

    depth.advance('{"a": [[{}]], "b": "[[[[["}')

    assert depth.deepest == 4
