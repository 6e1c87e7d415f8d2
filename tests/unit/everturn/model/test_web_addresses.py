import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.errors import Invalid
from everturn.model.web_addresses import (
    MAX_FOUND,
    MAX_HOST_CHARS,
    MAX_URL_CHARS,
    canonical_url,
    find_typed_urls,
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
def test_what_is_not_fetched_has_no_form(url: str) -> None:
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
    ],
)
def test_addresses_are_found_whole_in_what_a_person_typed(text: str, held: str, not_held: str) -> None:
    found = find_typed_urls(text)

    assert held in found and not_held not in found


def test_a_page_that_names_a_host_names_no_address() -> None:
    assert find_written_urls("mail evil.example or ann@evil.example") == frozenset()


def test_of_many_addresses_some_are_found() -> None:
    assert len(find_written_urls(" ".join(f"http://a.example/{n}" for n in range(2 * MAX_FOUND)))) == MAX_FOUND


@given(st.text(max_size=80))
def test_any_text_has_a_form_or_is_refused(text: str) -> None:
    try:
        canonical = canonical_url(f"http://{text}")
    except Invalid:
        return
    assert canonical_url(canonical) == canonical
    assert canonical.isascii() and len(canonical) <= MAX_URL_CHARS
