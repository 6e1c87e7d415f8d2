"""JSON objects are found in any text that a model writes around them, and a hostile text costs little."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.json_values import MAX_DEPTH, extract_json

texts = st.text(max_size=60)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
clean_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
values = st.recursive(
    scalars | clean_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(clean_texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(clean_texts, values, max_size=5)
prose = st.text(st.characters(exclude_characters="{<"), max_size=60)


@given(texts | st.text('{}[]",:\\ \n1eE-+.ntfu`<think>/', max_size=200))
def test_no_text_raises(text: str) -> None:
    for found in extract_json(text):
        json.dumps(found, allow_nan=False).encode()


@given(objects, prose, prose, st.booleans(), st.sampled_from([None, 2]))
def test_an_object_in_prose_or_a_fence_is_found(
    value: dict[str, object], before: str, after: str, is_fenced: bool, indent: int | None
) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=False)
    text = f"{before}\n```json\n{written}\n```\n{after}" if is_fenced else f"{before}{written}{after}"

    assert list(extract_json(text)) == [value]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Use {name} or {"b": 1', []),
        ('Use {name}: {"a": 1}', [{"a": 1}]),
        ('{"a": {"b": 1}} and {"c": 2}', [{"a": {"b": 1}}, {"c": 2}]),
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"a": "one\ntwo", "b": {}}', [{"a": "one\ntwo", "b": {}}]),
        ('{"a": NaN} {"a": 1e999} {"a": 2}', [{"a": 2}]),
        ('{"a": "\\u0000\\ud800\\ud83d\\ude00"}', [{"a": "\ufffd\ufffd\U0001f600"}]),
        ("", []),
    ],
)
def test_objects_are_found_in_order(text: str, found: list[object]) -> None:
    assert list(extract_json(text)) == found


@pytest.mark.parametrize(("depth", "count"), [(MAX_DEPTH, 2), (MAX_DEPTH + 1, 1), (300, 1), (5_000, 0)])
def test_an_object_that_is_nested_too_deeply_is_passed_over(depth: int, count: int) -> None:
    """The search ends at one that is deeper than Python can read."""
    deep = '{"a":' * depth + "1" + "}" * depth

    assert len(list(extract_json(f'{deep} {{"b": "{"{" * 100}"}}'))) == count


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        "{}",
        '{"',
        '{"a":',
        '{"a":[',
        '{"a":{},',
        '{"a":"',
        '{"a":NaN,',
        '{"a":1e999,',
        "<think>",
        "{ ",
        '{"a":' * 500 + "1",
        '{"a":' * 500 + "1" + "}" * 500,
    ],
)
def test_a_text_of_200_kb_that_resembles_json_takes_bounded_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    began_s = time.perf_counter()

    for _ in extract_json(text):
        pass

    assert time.perf_counter() - began_s < 2
