"""Callers without a token in development mode: local users, but no web page."""

import pytest
from starlette.datastructures import Headers

from ingress.auth.development import check_local_request, load_dev_user
from ingress.errors import ProblemError


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode()) for name, value in pairs])


@pytest.mark.parametrize(
    "pairs",
    [
        [("host", "localhost:8080")],
        [("host", "127.0.0.1")],
        [("host", "[::1]:8080")],
        [("host", "localhost:8080"), ("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")],
        [("host", "127.0.0.1:1"), ("sec-fetch-site", "none")],
    ],
)
def test_local_requests_pass(pairs: list[tuple[str, str]]) -> None:
    check_local_request(headers(*pairs))


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("host", "evil.example")],
        [("host", "localhost.evil.example:8080")],
        [("host", "localhost:8080@evil")],
        [("host", "127.0.0.1.nip.io")],
        [("host", "[::1")],
        [("host", "localhost"), ("host", "evil.example")],
        [("host", "localhost:8080"), ("origin", "http://evil.example")],
        [("host", "localhost:8080"), ("origin", "null")],
        [("host", "localhost:8080"), ("origin", "http://localhost:8081")],
        [("host", "localhost:8080"), ("origin", "https://localhost:8080")],
        [("host", "localhost:8080"), ("sec-fetch-site", "cross-site")],
        [("host", "localhost:8080"), ("sec-fetch-site", "same-site")],
        [("host", "localhost:8080"), ("x-forwarded-for", "1.2.3.4")],
        [("host", "localhost:8080"), ("x-forwarded-host", "a")],
        [("host", "localhost:8080"), ("forwarded", "for=1.2.3.4")],
        [("host", "localhost:8080"), ("x-real-ip", "1.2.3.4")],
        [("host", "localhost:8080"), ("via", "1.1 proxy")],
    ],
)
def test_what_may_come_from_a_page_or_a_proxy_is_forbidden(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ProblemError) as refused:
        check_local_request(headers(*pairs))

    assert refused.value.status_code == 403


def test_the_user_is_dev_unless_the_header_names_another() -> None:
    assert load_dev_user(headers()) == "dev"
    assert load_dev_user(headers(("x-dev-user", "ann"))) == "ann"


@pytest.mark.parametrize("names", [[""], ["a:b"], ["a", "b"], ["x" * 200]])
def test_a_bad_user_header_is_malformed(names: list[str]) -> None:
    with pytest.raises(ProblemError) as refused:
        load_dev_user(headers(*(("x-dev-user", name) for name in names)))

    assert refused.value.status_code == 400
