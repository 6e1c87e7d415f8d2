"""What every route checks before its endpoint runs. The tables of bad input are in test_bad_input.py."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

BASE = "/conversations/default/default"
UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
CONVERSATION, TURN, SIGNAL = f"conv_{UUID}", f"turn_{UUID}", f"sig_{UUID}"
Refused = Callable[..., dict[str, Any]]

ENDPOINTS = [
    ("POST", BASE),
    ("PATCH", f"{BASE}/{CONVERSATION}"),
    ("POST", f"{BASE}/new/messages"),
    ("POST", f"{BASE}/{CONVERSATION}/messages"),
    ("POST", f"{BASE}/{CONVERSATION}/signals"),
    ("PATCH", f"{BASE}/{CONVERSATION}/signals/{SIGNAL}"),
    ("POST", f"{BASE}/fetch"),
    ("POST", "/by-rn"),
    ("POST", f"{BASE}/{CONVERSATION}/turns/{TURN}/feedback"),
    ("POST", f"{BASE}/{CONVERSATION}/turns-with-feedbacks"),
]


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_another_type_or_coding_of_content_is_415(
    client: httpx2.AsyncClient, refused: Refused, method: str, path: str
) -> None:
    bomb = gzip.compress(b'{"text":"' + b"a" * 10_000_000 + b'"}')
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "a/b/c", ""):
        refused(await client.request(method, path, content=b'{"text":"a"}', headers={"Content-Type": kind}), 415)
    coded = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused(await client.request(method, path, content=bomb, headers=coded), 415)


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_a_body_above_its_cap_is_413_however_it_is_sent(
    client: httpx2.AsyncClient, refused: Refused, method: str, path: str
) -> None:
    async def endless() -> Any:
        for _ in range(600):
            yield b" " * 65_536

    kind = {"Content-Type": "application/json"}
    if not path.endswith(("/messages", "/signals")):
        refused(await client.request(method, path, content=b" " * 300_000, headers=kind), 413)
    refused(await client.request(method, path, content=endless(), headers=kind), 413)


async def test_another_method_is_405_and_says_which_are_allowed(client: httpx2.AsyncClient, refused: Refused) -> None:
    for method in ("PUT", "OPTIONS", "TRACE", "HEAD"):
        answer = await client.request(method, f"{BASE}/{CONVERSATION}")
        assert answer.status_code == 405
        assert "GET" in answer.headers["allow"]
    refused(await client.put(f"{BASE}/{CONVERSATION}"), 405)


@pytest.mark.parametrize("path", ["fetch", "search"])
async def test_a_path_like_that_of_a_conversation_allows_only_its_own_methods(
    client: httpx2.AsyncClient, path: str
) -> None:
    answer = await client.options(f"{BASE}/{path}")

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("key", ["", "x" * 201, "a\x7f", "\xe9"])
async def test_a_bad_idempotency_key_is_malformed(client: httpx2.AsyncClient, refused: Refused, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    refused(await client.post(f"{BASE}/new/messages", json={"text": "a"}, headers=headers), 400)


POST = b"POST /conversations/default/default/new/messages HTTP/1.1\r\n"
HOST, JSON = b"Host: localhost\r\n", b"Content-Type: application/json\r\n"


async def test_a_body_that_never_comes_does_not_hold_up_others(ingress: Any, client: httpx2.AsyncClient) -> None:
    parts = urlsplit(ingress.url)
    writers = []
    for _ in range(20):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(POST + HOST + JSON + b"Content-Length: 10\r\n\r\n{")
        writers.append(writer)

    async with asyncio.timeout(5):
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get(BASE)).status_code == 200
    for writer in writers:
        writer.close()
