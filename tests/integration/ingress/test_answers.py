"""Rules of all answers: headers, methods, and how fields are read, over HTTP and sockets."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from helpers.sockets import SocketClient

from ingress.fields import MAX_ERRORS

BASE = "/conversations/default/default"
TIMES = "2026-01-01T00:00:00Z"
RN = (
    "ef:default:default:chatbot:upload:dev:conv_01890a5d-ac96-774b-bcce-b302099a8057"
    ":turn_01890a5d-ac96-774b-bcce-b302099a8058:attachment:turn_01890a5d-ac96-774b-bcce-b302099a8058/attachments/a.csv"
)


@pytest.mark.parametrize("path", [BASE, f"{BASE}/feedback/summary", "/readyz", "/nowhere", f"{BASE}?limit=0"])
async def test_json_is_not_cached_and_not_sniffed(ingress: Any, path: str) -> None:
    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20) as http:
        answer = await http.get(path)

    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_files_have_their_own_cache_headers(client: httpx2.AsyncClient, chat: Any) -> None:
    accepted = await chat.send("", attachments=[{"filename": "a.csv", "data_base64": "YSxiCg=="}])
    [file] = (await chat.state(accepted["conversation_id"]))["turns"][0]["attachments"]

    assert (await client.get(file["url"])).headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/openapi.json", "/docs", "/", "/healthz", BASE])
async def test_dns_rebinding_pages_read_nothing_in_development(ingress: Any, path: str, refused: Any) -> None:
    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20) as http:
        rebound = await http.get(path, headers={"Host": f"evil.example:{urlsplit(ingress.url).port}"})
        own = await http.get(path, headers={"Host": "localhost"})

    refused(rebound, 403)
    assert own.status_code == 200


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (BASE, {"GET", "POST"}),
        (f"{BASE}/conv_01890a5d-ac96-774b-bcce-b302099a8057", {"GET", "PATCH", "DELETE"}),
        (f"{BASE}/conv_01890a5d-ac96-774b-bcce-b302099a8057/fork", {"POST"}),
        (f"{BASE}/feedback/conversations-in-period", {"POST"}),
        ("/by-rn", {"POST"}),
        ("/healthz", {"GET"}),
    ],
)
async def test_a_wrong_method_is_answered_with_the_right_ones(ingress: Any, path: str, allowed: set[str]) -> None:
    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20) as http:
        answer = await http.request("PUT", path)

    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == allowed


@pytest.mark.parametrize("value", [0, 0.5, True, "0", "1767225600", "2026-01-01", ""])
async def test_only_a_date_and_time_is_one(client: httpx2.AsyncClient, refused: Any, value: Any) -> None:
    body = {"from": value, "to": TIMES}
    report = refused(await client.post(f"{BASE}/feedback/conversations-in-period", json=body), 422)
    summary = refused(await client.get(f"{BASE}/feedback/summary", params={"from": str(value)}), 422)
    search = refused(await client.post(f"{BASE}/search", json={"query": "a", "from": value}), 422)

    fields = [problem["errors"][0]["field"] for problem in (report, summary, search)]
    assert fields == ["body.from", "query.from", "body.from"]


async def test_an_empty_cursor_is_refused_as_the_schema_says(client: httpx2.AsyncClient, refused: Any) -> None:
    period = {"from": "2025-01-01T00:00:00Z", "to": TIMES, "cursor": ""}
    answers = [
        await client.get(BASE, params={"cursor": ""}),
        await client.get("/memory/default/default", params={"cursor": ""}),
        await client.post(f"{BASE}/search", json={"query": "a", "cursor": ""}),
        await client.post(f"{BASE}/feedback/conversations-in-period", json=period),
    ]

    for answer in answers:
        assert refused(answer, 422)["errors"][0]["field"].endswith("cursor")


OWN = f"{BASE}/conv_01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", BASE, "allowed: archived, cursor, limit, q, state"),
        ("GET", f"{BASE}/feedback/summary", "allowed: from, scope, to"),
        ("GET", f"{OWN}/events", "allowed: after, lastEventId, ticket, view"),
        ("GET", "/files/default/default/art_01890a5d-ac96-774b-bcce-b302099a8057", "allowed: download"),
        ("DELETE", OWN, "this endpoint accepts no query parameters"),
        ("POST", f"{BASE}/new/messages", "this endpoint accepts no query parameters"),
        ("POST", "/by-rn", "this endpoint accepts no query parameters"),
        ("POST", "/guests/default/default", "this endpoint accepts no query parameters"),
    ],
)
async def test_an_unknown_query_parameter_is_refused_by_its_name(
    client: httpx2.AsyncClient, refused: Any, method: str, path: str, says: str
) -> None:
    body = {"rn": RN} if path == "/by-rn" else {"text": "a"}
    answer = await client.request(method, path, params={"limt": "secret"}, json=body if method == "POST" else None)

    problem = refused(answer, 422)
    assert problem["errors"] == [{"field": "query.limt", "message": f"Unknown parameter; {says}"}]
    assert "secret" not in answer.text


async def test_many_and_long_unknown_parameters_are_reported_briefly(client: httpx2.AsyncClient, refused: Any) -> None:
    problem = refused(await client.get(BASE, params={f"{'x' * 100}{number}": "1" for number in range(50)}), 422)

    assert len(problem["errors"]) == MAX_ERRORS
    assert all(len(error["field"]) < 100 for error in problem["errors"])


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/"])
async def test_probes_and_pages_ignore_what_was_put_behind_their_address(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path, params={"utm_source": "mail"})).status_code == 200


async def follow(ingress: Any, conversation: str, *values: str, query: str = "") -> bytes:
    """The status of a stream that is opened with these Last-Event-ID headers."""
    parts = urlsplit(ingress.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    ids = "".join(f"Last-Event-ID: {value}\r\n" for value in values)
    writer.write(f"GET {BASE}/{conversation}/events{query} HTTP/1.1\r\nHost: localhost\r\n{ids}\r\n".encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    return status


async def test_a_last_event_id_that_a_library_doubles_is_accepted(ingress: Any, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    assert await follow(ingress, conversation, "0-0, 0-0") == b"200"
    assert await follow(ingress, conversation, "0-0", "0-0") == b"200"
    assert await follow(ingress, conversation, "0-0,x") == b"400"


async def test_a_polyfill_of_event_source_sends_its_cursor_in_the_address(ingress: Any, chat: Any) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]

    assert await follow(ingress, conversation, query="?lastEventId=0-0") == b"200"
    assert await follow(ingress, conversation, query="?lastEventId=x") == b"400"


@pytest.mark.parametrize(
    ("zone", "status"),
    [("Europe/Berlin", 202), ("UTC", 202), (None, 202), ("Mars/Olympus", 422), ("../etc/passwd", 422)],
)
async def test_a_message_may_name_the_time_zone_of_its_person(
    client: httpx2.AsyncClient, ingress: Any, sockets: Any, zone: str | None, status: int
) -> None:
    message = await client.post(f"{BASE}/new/messages", json={"text": "a", "time_zone": zone})
    parts = {"message": (None, json.dumps({"text": "a", "time_zone": zone}), "application/json")}
    multipart = await client.post(f"{BASE}/new/messages", files=parts)
    socket: SocketClient = await sockets(ingress.url).connect()
    call = await socket.call("chat_message", {"conversation_id": "new", "text": "a", "time_zone": zone})

    assert (message.status_code, multipart.status_code, call["status"]) == (status, status, status)
    if status == 422:
        for problem in (message.json(), multipart.json(), call["body"]):
            (error,) = problem["errors"]
            assert error["field"] == "body.time_zone"
            assert "IANA name such as Europe/Berlin" in error["message"]


async def test_the_api_document_says_which_bundles_there_are(client: httpx2.AsyncClient) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]

    assert "GET /bundles" in schemas["ConversationIn"]["properties"]["bundle_id"]["description"]
