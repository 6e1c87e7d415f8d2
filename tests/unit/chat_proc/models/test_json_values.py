import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.json_values import JsonRefusal, JsonValue, read_json

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not_json"),
        ("hello", "not_json"),
        ('{"a": ', "not_json"),
        ('{"a": "x", }', "not_json"),
        ('{"a": 1} {"b": 2}', "two_objects"),
        ('{"a": 1} and so on', "text_after_object"),
        ('{"a": 1}}', "text_after_object"),
        ('{"a": {"b": 1, "b": 2}}', "duplicate_key"),
        ('{"a": NaN}', "not_a_number"),
        ('{"a": -Infinity}', "not_a_number"),
        ('{"a": 1e999}', "number_too_large"),
        ('{"a": 9223372036854775808}', "number_too_large"),
        ('{"a": ' + "9" * 100_000 + "}", "number_too_large"),
        ("[" * 100_000, "too_deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "too_deep"),
    ],
)
def test_anything_but_a_single_value_is_refused(text: str, fault: str) -> None:
    read = read_json(text)

    assert isinstance(read, JsonRefusal)
    assert read.fault == fault
    assert len(read.detail) < 120


@pytest.mark.parametrize(
    "text", ['{"a": 1}', ' \n{"a": 1}\n', '```json\n{"a": 1}\n```', '```\n{"a": 1}```', '```JSON {"a": 1}\n']
)
def test_a_code_fence_around_the_value_is_let_through(text: str) -> None:
    assert read_json(text) == JsonValue({"a": 1})


def test_texts_are_storable_everywhere_in_the_value() -> None:
    read = read_json('{"\\u0000": ["\\ud800", ["a\\u0000"], {"b": "\\udc00"}]}')

    assert read == JsonValue({"\ufffd": ["\ufffd", ["a\ufffd"], {"b": "\ufffd"}]})


def test_raw_line_breaks_in_a_string_are_let_through() -> None:
    assert read_json('{"a": "x\ny"}') == JsonValue({"a": "x\ny"})


@given(JSON_VALUES)
def test_every_json_value_is_read(value: object) -> None:
    assume_plain = json.loads(json.dumps(value).replace("\\u0000", "\\ufffd"))

    assert read_json(json.dumps(assume_plain)) == JsonValue(assume_plain)


@given(st.text(alphabet='{}[]",:\\ `\n1aeNu\x00') | st.text())
def test_no_text_raises(text: str) -> None:
    assert isinstance(read_json(text), JsonValue | JsonRefusal)
