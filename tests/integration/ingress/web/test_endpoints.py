"""The web client as a running ingress serves it."""

import gzip
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from helpers.ingresses import IngressProcess

Refused = Callable[[httpx2.Response, int], None]
PAGE = b"<!doctype html><title>Page</title>"
SCRIPT = b"console.log(1)\n" * 100


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    (folder / "assets").mkdir()
    (folder / "index.html").write_bytes(PAGE)
    (folder / "assets" / "licenses.txt").write_text("MIT License")
    (folder / "assets" / "index-1a2b.js").write_bytes(SCRIPT)
    (folder / "assets" / "index-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT))
    return folder


@pytest.fixture(scope="module")
def serving(start_ingress: Callable[..., IngressProcess], dist: Path) -> IngressProcess:
    return start_ingress(WEB_DIST=str(dist))


def ask(process: IngressProcess, method: str, path: str, **headers: str) -> httpx2.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.request(method, f"{process.url}{path}", headers=sent, timeout=20)


def test_the_page_runs_only_own_scripts_and_cannot_be_framed(serving: IngressProcess) -> None:
    page = ask(serving, "GET", "/")

    assert (page.status_code, page.content) == (200, PAGE)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    policy = dict(each.split(" ", 1) for each in page.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["script-src"], policy["connect-src"]) == ("'none'", "'self'", "'self'")
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["frame-src"] == "'self'"
    assert "http" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"


def test_licences_of_the_page_are_served_and_not_kept_forever(serving: IngressProcess) -> None:
    licenses = ask(serving, "GET", "/assets/licenses.txt")

    assert licenses.text == "MIT License"
    assert licenses.headers["content-type"] == "text/plain; charset=utf-8"
    assert licenses.headers["cache-control"] == "no-cache"


def test_assets_are_immutable_and_sent_compressed_if_accepted(serving: IngressProcess) -> None:
    plain = ask(serving, "GET", "/assets/index-1a2b.js", Accept_Encoding="identity")
    small = ask(serving, "GET", "/assets/index-1a2b.js", Accept_Encoding="gzip, br")

    assert plain.content == small.content == SCRIPT
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) < int(plain.headers["content-length"]) == len(SCRIPT)
    for answer in (plain, small):
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert "Accept-Encoding" in answer.headers["vary"]
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


def test_head_returns_the_headers_of_get(serving: IngressProcess) -> None:
    head = ask(serving, "HEAD", "/assets/index-1a2b.js", Accept_Encoding="identity")

    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == len(SCRIPT)


@pytest.mark.parametrize(
    "path",
    ["/assets/absent.js", "/assets/", "/assets/../index.html", "/assets/%2e%2e/index.html", "/index.html", "/any"],
)
def test_what_is_not_there_is_a_problem(serving: IngressProcess, refused: Refused, path: str) -> None:
    refused(ask(serving, "GET", path), 404)


def test_the_page_hides_no_route_of_the_api(serving: IngressProcess, refused: Refused) -> None:
    conversations = ask(serving, "GET", "/conversations/default/default")

    assert conversations.json()["items"] == []
    refused(ask(serving, "GET", "/conversations/default/default/conv_absent"), 404)
    refused(ask(serving, "POST", "/"), 405)
    assert ask(serving, "GET", "/openapi.json").json()["openapi"]
    assert "/assets" not in str(list(ask(serving, "GET", "/openapi.json").json()["paths"]))


def test_a_cross_site_navigation_gets_the_page_but_no_data(serving: IngressProcess, refused: Refused) -> None:
    foreign = {"Sec_Fetch_Site": "cross-site"}

    assert ask(serving, "GET", "/", **foreign).content == PAGE
    refused(ask(serving, "GET", "/conversations/default/default", **foreign), 403)
    refused(ask(serving, "GET", "/conversations/default/default", Host="evil.example"), 403)


def test_pages_of_the_agent_get_a_frame_without_origin_and_network(serving: IngressProcess) -> None:
    frame = ask(serving, "GET", "/artifact-frame")

    policy = dict(each.split(" ", 1) for each in frame.headers["content-security-policy"].split("; "))
    assert (policy["sandbox"], policy["default-src"], policy["frame-ancestors"]) == (
        "allow-scripts",
        "'none'",
        "'self'",
    )
    assert "connect-src" not in policy
    assert "http" not in frame.headers["content-security-policy"]
    assert frame.headers["connection-allowlist"] == "()"


def test_without_a_built_client_a_sentence_says_where_the_page_would_be(
    ingress: IngressProcess, refused: Refused
) -> None:
    answer = ask(ingress, "GET", "/")

    assert answer.status_code == 200
    assert "WEB_DIST" in answer.text
    assert "/docs" in answer.text
    assert "<script" not in answer.text
    refused(ask(ingress, "GET", "/assets/index-1a2b.js"), 404)
