"""Which web pages may use the server: those of one exact list, and our own."""

from collections.abc import Callable

import pytest
from starlette.datastructures import Headers

from ingress.auth.origins import Origins
from ingress.errors import ProblemError

ORIGINS = Origins(frozenset({"https://chat.example", "http://localhost:3000"}))
HOST = ("host", "api.example:8080")
MakeHeaders = Callable[..., Headers]


@pytest.mark.parametrize(
    "pairs",
    [
        [HOST],
        [HOST, ("origin", "https://chat.example")],
        [HOST, ("origin", "http://localhost:3000")],
        [HOST, ("origin", "http://api.example:8080")],
        [HOST, ("origin", "https://api.example:8080")],
        [HOST, ("origin", "https://chat.example"), ("sec-fetch-site", "cross-site")],
        [HOST, ("sec-fetch-site", "same-origin")],
    ],
)
def test_programs_listed_pages_and_our_own_pages_pass(headers: MakeHeaders, pairs: list[tuple[str, str]]) -> None:
    ORIGINS.check_page(headers(*pairs))


@pytest.mark.parametrize(
    "pairs",
    [
        [HOST, ("origin", "https://evil.example")],
        [HOST, ("origin", "null")],
        [HOST, ("origin", "")],
        [HOST, ("origin", "https://chat.example.evil.example")],
        [HOST, ("origin", "http://chat.example")],
        [HOST, ("origin", "https://chat.example:444")],
        [HOST, ("origin", "http://api.example")],
        [HOST, ("origin", "chrome-extension://api.example:8080")],
        [HOST, ("origin", "https://chat.example"), ("origin", "https://evil.example")],
        [("host", "a"), ("host", "b"), ("origin", "http://a")],
        [("origin", "http://api.example")],
        [HOST, ("sec-fetch-site", "cross-site")],
    ],
)
def test_pages_of_strangers_are_refused(headers: MakeHeaders, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ProblemError) as refused:
        ORIGINS.check_page(headers(*pairs))

    assert refused.value.status_code == 403


def test_only_a_listed_origin_is_named_in_answers(headers: MakeHeaders) -> None:
    assert ORIGINS.try_allowed(headers(HOST, ("origin", "https://chat.example"))) == "https://chat.example"
    assert ORIGINS.try_allowed(headers(HOST, ("origin", "http://api.example:8080"))) is None
    assert ORIGINS.try_allowed(headers(HOST, ("origin", "https://evil.example"))) is None
    assert ORIGINS.try_allowed(headers(HOST)) is None
