import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.errors import Invalid
from everturn.core.urls import MAX_URL_CHARS
from everturn.timeline.sources import MAX_KEY_CHARS, normalize_url, source_key


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTPS://Example.COM", "https://example.com/"),
        ("http://a.example:80/x", "http://a.example/x"),
        ("https://a.example:443/x", "https://a.example/x"),
        ("http://a.example:443/x", "http://a.example:443/x"),
        ("http://a.example:8080/x", "http://a.example:8080/x"),
        ("http://127.0.0.1:9000/x", "http://127.0.0.1:9000/x"),
        ("http://[2001:DB8::1]:8080/x", "http://[2001:db8::1]:8080/x"),
        ("https://a.example/x#part", "https://a.example/x"),
        ("https://a.example/x?", "https://a.example/x"),
        ("https://a.example/x?utm_source=n&b=2&gclid=z&a=1", "https://a.example/x?b=2&a=1"),
        ("https://a.example/%7euser/%c3%a9", "https://a.example/~user/%C3%A9"),
        ("https://a.example/a b", "https://a.example/a%20b"),
        (" https://a.example/x \n", "https://a.example/x"),
        ("https://Bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://a.example/Case?Q=Case", "https://a.example/Case?Q=Case"),
        ("https://a.example/x/", "https://a.example/x/"),
    ],
)
def test_spellings_of_one_address_are_one(url: str, normal: str) -> None:
    assert normalize_url(url) == normal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a.example/", "https://a.example/"),
        ("http://a.example:8080/", "http://a.example:8081/"),
        ("http://10.0.0.1/", "http://10.0.0.2/"),
        ("https://a.example/x?a=1", "https://a.example/x?a=2"),
        ("https://a.example/x", "https://a.example/X"),
    ],
)
def test_different_addresses_stay_different(one: str, other: str) -> None:
    assert source_key(one) != source_key(other)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a.example", "javascript:alert(1)", "https://", "//a.example", "http://[::1", "http://a.example:99999/",
     "https://a.example/" + "x" * MAX_URL_CHARS, "fi:nothing", "ar:turn_1.user.prompt"],
)  # fmt: skip
def test_an_invalid_address_has_no_key(url: str) -> None:
    with pytest.raises(Invalid):
        source_key(url)


def test_a_file_is_known_by_its_ref() -> None:
    assert source_key("fi:turn_1.files/a.png") == "file:fi:turn_1.files/a.png"


def test_a_key_fits_into_an_index() -> None:
    long = source_key("https://a.example/" + "x" * (MAX_URL_CHARS - 100))

    assert len(long) <= MAX_KEY_CHARS
    assert long != source_key("https://a.example/" + "x" * (MAX_URL_CHARS - 101))


HOSTS = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,10}[a-zA-Z0-9])?(\.[a-zA-Z]{2,5}){1,2}", fullmatch=True)
RESTS = st.text(max_size=40).map(lambda text: text.replace("\ud800", ""))
URLS = st.builds(
    lambda scheme, host, port, rest: f"{scheme}://{host}{port}/{rest}",
    st.sampled_from(["http", "HTTPS", "Http"]),
    HOSTS,
    st.sampled_from(["", ":80", ":443", ":8080"]),
    RESTS,
)


@given(URLS)
def test_a_normal_address_stays_as_it_is(url: str) -> None:
    once = normalize_url(url)

    assert normalize_url(once) == once


@given(st.text(max_size=60))
def test_any_text_has_a_key_or_is_refused(text: str) -> None:
    try:
        key = source_key(text)
    except Invalid:
        return
    assert 0 < len(key) <= MAX_KEY_CHARS
