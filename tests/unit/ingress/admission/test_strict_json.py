"""JSON that is refused, with the reason."""

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingress.admission.strict_json import (
    LARGE_BYTES,
    MAX_DEPTH,
    MAX_KEY_BYTES,
    MAX_LONG_KEYS_BYTES,
    MAX_TOKENS,
    BadJson,
    load_strict,
    parse_strict,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=150)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_ordinary_json_is_read_as_the_standard_library_reads_it(value: object, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()

    assert parse_strict(raw) == json.loads(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        parse_strict(raw)
    except BadJson as error:
        assert error.detail


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b'{"a":1} x', "Extra data"),
        (b'{"a":1,"a":2}', "The key a appears twice"),
        (b'{"b":{"a b":1,"a b":2}}', "'a b' appears twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b"[Infinity]", "Infinity is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e999]", "1e999 is too large"),
        (b"[" + b"9" * 5000 + b"]", "is too large"),
        (b"[9223372036854775808]", "is too large"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\xff\xfe{\x00}\x00", "byte order mark"),
        (b'"\xc3\x28"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'{"text":"a\\ud800b"}', "$.text contains a lone surrogate"),
        (b'{"a":[{"b":"x\\u0000"}]}', "$.a[0].b contains the character U+0000"),
        (b'{"a\\u0000":1}', "U+0000"),
        (b'"a\x00b"', "Invalid control character"),
        (b"{'a':1}", "Expecting property name"),
    ],
)
def test_ambiguous_or_unstorable_json_is_refused_with_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(BadJson) as refused:
        parse_strict(raw)

    assert reason in refused.value.detail


def test_a_whole_surrogate_pair_and_escaped_text_are_fine() -> None:
    assert parse_strict(b'{"text":"\\ud83d\\ude00 \\u00e4 \\n"}') == {"text": "\U0001f600 ä \n"}


def test_depth_is_bounded_and_brackets_inside_strings_do_not_count() -> None:
    assert parse_strict(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert parse_strict(json.dumps("[" * 10_000 + '\\"{').encode())
    for depth in (MAX_DEPTH + 1, 10_000, 1_000_000):
        with pytest.raises(BadJson, match="nested deeper"):
            parse_strict(b"[" * depth)


@pytest.mark.parametrize(
    "raw",
    [
        b"{" + b",".join(b'"k%d":1' % n for n in range(MAX_TOKENS)) + b"}",
        b"[" + b"1," * 2_000_000 + b"1]",
        b'"' + b'\\"' * 2_000_000,
        b'{"a":"' + b"x" * 20_000_000,
    ],
    ids=["a million keys", "many numbers", "unclosed string of quotes", "unclosed long string"],
)
def test_hostile_bodies_are_refused_fast(raw: bytes) -> None:
    start = time.process_time()

    with pytest.raises(BadJson):
        parse_strict(raw)

    assert time.process_time() - start < 3


PADDING = b" " * LARGE_BYTES
"""Makes any text one that is read in parts."""


@given(VALUES, TEXT.map(lambda text: text * 40), st.booleans())
def test_large_json_is_read_as_the_standard_library_reads_it(value: object, text: str, ascii_only: bool) -> None:
    raw = json.dumps({"a": [value, text], "b": text}, ensure_ascii=ascii_only).encode() + PADDING

    assert parse_strict(raw) == json.loads(raw)


@pytest.mark.parametrize("blanks", ["", " \r\n\t"])
def test_long_keys_of_large_bodies_are_read_up_to_a_cap(blanks: str) -> None:
    key = "k" * (MAX_KEY_BYTES - 2)
    raw = f'{{"{key}"{blanks}: ["{"v" * 300}"], "{"v" * 300}": "{key}{key}"}}'.encode() + PADDING

    assert parse_strict(raw) == json.loads(raw)
    with pytest.raises(BadJson, match="The key at byte 1 is longer than"):
        parse_strict(raw.replace(b'{"k', b'{"kk'))


@pytest.mark.parametrize("count", [60, 70])
def test_long_keys_of_a_body_are_bounded_together(count: int) -> None:
    raw = json.dumps({f"{number:02}{'k' * 1_996}": 1 for number in range(count)}).encode()

    if count * 2_000 <= MAX_LONG_KEYS_BYTES:
        assert len(parse_strict(raw)) == count
    else:
        with pytest.raises(BadJson, match="long keys"):
            parse_strict(raw)


@pytest.mark.parametrize("pad", range(12))
def test_escapes_and_characters_that_a_piece_ends_in_stay_whole(pad: int) -> None:
    text = "x" * pad + "\U0001f600" * 30_000
    for raw in (json.dumps([text]).encode(), json.dumps([text], ensure_ascii=False).encode()):
        assert parse_strict(raw) == [text]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'["' + b"a" * 300 + b'", Infinity]', "Infinity is not JSON"),
        (b'[Infinity, "' + b"a" * 300 + b'"]', "Infinity is not JSON"),
        (b'[-"' + b"a" * 300 + b'"]', "-Infinity is not JSON"),
        (b'{"' + b"a" * 300 + b'" 1}', "Expecting property name"),
        (b'["' + b"a" * 300 + b'" "b"]', "Expecting ',' delimiter"),
        (b'["' + b"a" * 300 + b'\\ud800"]', "lone surrogate"),
        (b'["' + b"a" * 300 + b'\\u0000"]', "U+0000"),
        (b'["' + b"a" * 300 + b'\\uzzzz"]', "Invalid escape"),
        (b'["' + b"a" * 300 + b'\\x"]', "escape"),
        (b'["' + b"a" * 300 + b'\n"]', "Invalid control character"),
        (b'["' + b"a" * 300, "Unterminated string"),
        (b'["' + b"a" * 300 + b'\xff"]', "not UTF-8 at byte 302"),
        (b'["a", "\\ud800", "' + b"a" * 300 + b'"]', "$[1] contains a lone surrogate"),
    ],
)
def test_a_large_text_is_refused_for_the_same_reasons(raw: bytes, reason: str) -> None:
    with pytest.raises(BadJson) as refused:
        parse_strict(raw + PADDING)

    assert reason in refused.value.detail


@pytest.mark.parametrize(
    "raw",
    [b'{"text":"' + b"\\u0041" * 1_300_000 + b'"}', b'["' + b'","'.join([b"\\n" * 30_000] * 130) + b'"]'],
    ids=["one long string", "many strings"],
)
async def test_the_event_loop_goes_on_while_a_large_text_is_read(raw: bytes) -> None:
    lags: list[float] = []

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            lags.append(time.perf_counter() - began)

    ticking = asyncio.create_task(tick())
    began = time.perf_counter()
    assert await load_strict(raw)
    took = time.perf_counter() - began
    ticking.cancel()

    assert max(lags) < took / 2, (max(lags), took)
