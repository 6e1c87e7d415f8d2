import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.errors import Invalid
from everturn.core.urls import (
    MAX_FOREIGN_HOSTS,
    MAX_FOUND,
    MAX_HOST_CHARS,
    MAX_URL_CHARS,
    TypedSearch,
    canonical_url,
    find_written_urls,
)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTPS://Example.COM", "https://example.com/"),
        ("http://a.example:80/x#part", "http://a.example/x"),
        ("https://a.example/x?utm_source=n&gclid=z", "https://a.example/x?utm_source=n&gclid=z"),
        ("https://a.example/%7euser", "https://a.example/%7euser"),
        ("https://a.example/a b\tc", "https://a.example/a%20b%09c"),
        ("https://B\u00fccher.example/\u00e9", "https://xn--bcher-kva.example/%C3%A9"),
        ("https://a.example./", "https://a.example./"),
    ],
)
def test_an_address_has_one_form_that_keeps_all_that_a_server_sees(url: str, canonical: str) -> None:
    assert canonical_url(url) == canonical
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a.example/", "https://user@a.example/", "https://:pw@a.example/", "http://[::1", "http://a:99999/",
     "https://a.example/" + "x" * MAX_URL_CHARS, "http://" + "a." * MAX_HOST_CHARS + "example/", "http://\ud800/",
     "https://a.example/\ud800", "http://" + "\ufdfa" * 250 + "/", "http://" + "\ufdfa" * 130_000],
)  # fmt: skip
def test_an_unfetchable_address_has_no_canonical_form(url: str) -> None:
    with pytest.raises(Invalid):
        canonical_url(url)


@pytest.mark.parametrize(
    ("text", "held", "not_held"),
    [
        ("See https://a.example/x.", "https://a.example/x", "https://a.example/"),
        ("(https://a.example/Foo_(bar))", "https://a.example/Foo_(bar)", "https://a.example/Foo_"),
        ("[text](https://a.example/y?z=1), and", "https://a.example/y?z=1", "https://a.example/y"),
        ("[https://a.example/1](https://b.example/2)", "https://b.example/2", "https://b.example/"),
        ("what does docs.example.com/guide say?", "https://docs.example.com/guide", "https://example.com/guide"),
        ("Example.COM", "http://example.com/", "https://www.example.com/"),
        (
            "by http://www.B\u00dcCHER.example/\u00e9 now",
            "http://www.xn--bcher-kva.example/%C3%A9",
            "http://a.example/",
        ),
        ("http://bu\u0308cher.example", "http://xn--bcher-kva.example/", "http://bucher.example/"),
        ("\u0130 https://Stra\u00dfe.example/x", "https://strasse.example/x", "https://stra.example/x"),
        ("http://[::1]:8080/a?", "http://[::1]:8080/a", "http://[::1]/a"),
        ("http://a.example/x#part", "http://a.example/x", "http://a.example/x%23part"),
        ("http://b.example/?u=http://a.example/", "http://a.example/", "http://b.example/"),
        ("x@a.example www.a.example http://a.example.: b.example", "http://b.example/", "http://www.b.example/"),
        ("http://\u0130.example/ a.example", "https://a.example/", "http://i.example/"),
        ("a.example " * 2000 + "b.example/x", "http://b.example/x", "http://b.example/"),
    ],
)
def test_addresses_are_found_whole_in_what_a_person_typed(text: str, held: str, not_held: str) -> None:
    search = TypedSearch([held, not_held])
    search.read(text)

    assert search.found == {held}


def test_a_host_alone_is_not_an_address() -> None:
    assert find_written_urls("mail evil.example or ann@evil.example") == frozenset()


def test_in_many_addresses_some_are_found() -> None:
    assert len(find_written_urls(" ".join(f"http://a.example/{n}" for n in range(2 * MAX_FOUND)))) == MAX_FOUND


LETTERS = "\ufdfa" * 14
"""A host that takes the encoding of names 2 ms."""
COSTLY = {
    "hosts in other letters": " ".join(f"http://{LETTERS}/{n}........" for n in range(20_000)),
    "other hosts each": " ".join(f"http://{chr(0x4E00 + n)}{LETTERS}/" for n in range(20_000)),
    "the host in other cases": " ".join(f"http://b\u00fccher.example{n}/" for n in range(30_000)),
    "the host": "http://b\u00fccher.example/\u00e9........ " * 30_000,
    "the host without a scheme": "a.example " * 100_000,
    "long paths": ("http://a.example/" + "\u00e9" * 2000 + "](........ ") * 500,
    "marks at the end": "http://a.example......](......)](....... " * 25_000,
    "addresses in addresses": "http://a.example/" * 60_000,
    "schemes": "http://" * 140_000,
    "labels": "a." * 500_000,
    "an end of the host": "a.exampl" * 125_000,
}


def count_calls(work: Callable[[], object]) -> tuple[int, int]:
    """How many names the encoding has prepared, and all calls of functions, also of those in C."""
    prepared = calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal prepared, calls
        prepared += event == "call" and frame.f_code.co_name == "ToASCII"
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return prepared, calls


@pytest.mark.parametrize("kind", COSTLY)
def test_addresses_of_any_text_take_bounded_work(kind: str) -> None:
    text = COSTLY[kind][:1_000_000]
    search = TypedSearch(["http://a.example/never", "http://xn--bcher-kva.example/never"])

    typed, calls = count_calls(lambda: [search.read(text) for _ in range(20)])
    written, written_calls = count_calls(lambda: find_written_urls(text))

    assert typed == 0 and calls < 300_000
    # A name has up to four labels here.
    assert written <= 4 * MAX_FOREIGN_HOSTS and written_calls < 300_000


@given(st.text(max_size=80))
def test_any_text_has_a_form_or_is_refused(text: str) -> None:
    try:
        canonical = canonical_url(f"http://{text}")
    except Invalid:
        return
    assert canonical_url(canonical) == canonical
    assert canonical.isascii() and len(canonical) <= MAX_URL_CHARS
