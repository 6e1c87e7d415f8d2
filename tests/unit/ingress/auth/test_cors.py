"""The answers to browsers: preflights before anything else, answers marked for listed origins, no cookies ever."""

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ingress.auth.origins import Cors, Origins

LISTED, STRANGER = "https://chat.example", "https://evil.example"
reached: list[str] = []


async def answer(request: Request) -> Response:
    reached.append(request.method)
    return JSONResponse({"secret": 1}, headers={"Vary": "Accept", "Retry-After": "1"})


@pytest.fixture
def client() -> httpx2.AsyncClient:
    reached.clear()
    inner = Starlette(routes=[Route("/x", answer, methods=["GET", "POST", "DELETE"])])
    app = Cors(inner, origins=Origins(frozenset({LISTED})))
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://api.example")


def preflight(origin: str) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }


@pytest.mark.parametrize("path", ["/x", "/nothing", "/conversations/a/b/c"])
async def test_a_preflight_of_a_listed_origin_has_one_answer_for_every_path(
    client: httpx2.AsyncClient, path: str
) -> None:
    got = await client.options(path, headers=preflight(LISTED))

    assert (got.status_code, got.content) == (204, b"")
    assert got.headers["access-control-allow-origin"] == LISTED
    assert "POST" in got.headers["access-control-allow-methods"]
    assert "Authorization" in got.headers["access-control-allow-headers"]
    assert "Origin" in got.headers["vary"]
    assert "access-control-allow-credentials" not in got.headers
    assert not reached


@pytest.mark.parametrize("origin", [STRANGER, "null", ""])
async def test_a_preflight_of_an_unlisted_origin_is_403(client: httpx2.AsyncClient, origin: str) -> None:
    got = await client.options("/x", headers=preflight(origin))

    assert got.status_code == 403
    assert not [name for name in got.headers if name.startswith("access-control-")]
    assert not reached


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_write_from_a_strangers_page_is_refused_before_it_is_read(
    client: httpx2.AsyncClient, method: str
) -> None:
    for headers in ({"Origin": STRANGER}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        got = await client.request(method, "/x", headers=headers)

        assert got.status_code == 403
        assert got.headers["content-type"] == "application/problem+json"
        assert "access-control-allow-origin" not in got.headers
    assert not reached


async def test_an_unlisted_origin_gets_no_cors_headers(
    client: httpx2.AsyncClient,
) -> None:
    got = await client.get("/x", headers={"Origin": STRANGER})

    assert got.status_code == 200
    assert "access-control-allow-origin" not in got.headers
    assert "Origin" in got.headers["vary"]


async def test_answers_to_a_listed_origin_can_be_read_with_their_headers(client: httpx2.AsyncClient) -> None:
    for got in (
        await client.post("/x", headers={"Origin": LISTED}),
        await client.get("/no", headers={"Origin": LISTED}),
    ):
        assert got.headers["access-control-allow-origin"] == LISTED
        assert "Retry-After" in got.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in got.headers
        assert "Origin" in got.headers["vary"]


async def test_requests_without_origin_and_plain_options_pass(
    client: httpx2.AsyncClient,
) -> None:
    assert (await client.post("/x")).status_code == 200
    assert (await client.options("/x")).status_code == 405
