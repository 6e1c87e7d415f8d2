"""Reading idempotency keys and hashing what was sent under them."""

import pytest
from starlette.datastructures import Headers

from ingress.admission.idempotency import build_key, try_read_key
from ingress.errors import ProblemError


def headers(*values: str) -> Headers:
    return Headers(raw=[(b"idempotency-key", value.encode("latin-1")) for value in values])


@pytest.mark.parametrize(
    ("sent", "key"),
    [("abc", "abc"), ('"abc"', "abc"), ('"a \\" b"', 'a " b'), ("  abc ", "abc"), ("x" * 200, "x" * 200), ('"', '"')],
)
def test_a_key_is_read_quoted_or_not(sent: str, key: str) -> None:
    assert try_read_key(headers(sent)) == key


def test_without_the_header_there_is_no_key() -> None:
    assert try_read_key(Headers()) is None
    assert build_key(Headers(), route="r", content={}) is None


@pytest.mark.parametrize("sent", ["", '""', "x" * 201, "a\tb", "ä", "a\x00b", '" a"'])
def test_a_key_that_is_no_short_printable_string_is_malformed(sent: str) -> None:
    with pytest.raises(ProblemError) as refused:
        try_read_key(headers(sent))

    assert refused.value.status_code == 400


def test_two_keys_are_malformed() -> None:
    with pytest.raises(ProblemError):
        try_read_key(headers("a", "b"))


def test_the_hash_is_over_the_content_whatever_its_order() -> None:
    one = build_key(headers("k"), route="r", content={"a": 1, "b": ["x"]})
    same = build_key(headers("k"), route="r", content={"b": ["x"], "a": 1})
    other = build_key(headers("k"), route="r", content={"b": ["y"], "a": 1})

    assert one == same
    assert one and other and one.request_hash != other.request_hash
