"""Guests on a real ingress: each sees only its own conversations, and guests' turns wait in their own lane."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from everturn_local.servers.databases import DatabaseUrls
from everturn_local.servers.postgres import EmbeddedPostgres

SECRET = "a secret that is long enough for HS256"
BASE = "/conversations/default/default"
Refused = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def open_door(start_ingress: Any) -> Any:
    return start_ingress(
        EVERTURN_MODE="production",
        AUTH_ISSUER="i",
        AUTH_AUDIENCE="a",
        AUTH_SECRET=SECRET,
        GUEST_SCOPES="default/default",
    )


@pytest.fixture
async def http(open_door: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=open_door.url, timeout=20) as client:
        yield client


async def come_in(http: httpx2.AsyncClient) -> dict[str, str]:
    answer = await http.post("/guests/default/default")
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def test_two_guests_share_nothing(http: httpx2.AsyncClient, refused: Refused) -> None:
    one, other = await come_in(http), await come_in(http)

    sent = await http.post(f"{BASE}/new/messages", json={"text": "secret"}, headers=one)
    conversation = sent.json()["conversation_id"]

    assert sent.status_code == 202
    assert (await http.get(f"{BASE}/{conversation}", headers=one)).status_code == 200
    refused(await http.get(f"{BASE}/{conversation}", headers=other), 404)
    assert (await http.get(BASE, headers=other)).json()["items"] == []


async def test_a_guests_turn_waits_in_the_lane_of_guests(
    http: httpx2.AsyncClient, database: DatabaseUrls, postgres_server: EmbeddedPostgres
) -> None:
    sent = await http.post(f"{BASE}/new/messages", json={"text": "hello"}, headers=await come_in(http))

    turn = sent.json()["turn_id"]
    lane = postgres_server.run_sql(
        f"SELECT lane FROM turn WHERE id = '{turn}'", database=database.ingress.rpartition("/")[2]
    )
    assert lane == "anonymous"


async def test_guests_need_their_scope_and_a_token(http: httpx2.AsyncClient, refused: Refused) -> None:
    guest = await come_in(http)

    refused(await http.post("/guests/other/default"), 404)
    refused(await http.get("/conversations/other/default", headers=guest), 404)
    refused(await http.get(BASE), 401)
    refused(await http.post("/guests/default/default", headers={"Origin": "https://evil.example"}), 403)


async def test_a_page_can_check_whether_guests_are_accepted(http: httpx2.AsyncClient, refused: Refused) -> None:
    asked = await http.get("/guests/default/default")

    assert (asked.status_code, asked.content) == (204, b"")
    refused(await http.get("/guests/other/default"), 404)


async def test_the_answer_says_where_guests_are_disabled(client: httpx2.AsyncClient, refused: Refused) -> None:
    refused(await client.get("/guests/default/default"), 403)
    refused(await client.post("/guests/default/default"), 403)
