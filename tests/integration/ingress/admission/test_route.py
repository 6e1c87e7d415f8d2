"""Bad JSON and bad HTTP: every endpoint that takes a body answers with a 4xx problem, and the process stays."""

import asyncio
import gzip
import json
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
MALFORMED = {
    "missing": b"",
    "cut": b'{"text": "a',
    "depth": b'{"text":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "million keys": b"{" + b",".join(b'"k%d":1' % n for n in range(15_000)) + b"}",
    "twice": b'{"text":"a","text":"b"}',
    "nan": b'{"text":NaN}',
    "1e999": b'{"limit":1e999}',
    "huge": b'{"limit":' + b"9" * 5000 + b"}",
    "bom": b'\xef\xbb\xbf{"text":"a"}',
    "utf16": '{"text":"a"}'.encode("utf-16"),
    "latin1": b'{"text":"\xe9"}',
    "surrogate": b'{"text":"\\ud800"}',
    "zero": b'{"text":"a\\u0000b"}',
    "raw zero": b'{"text":"a\x00b"}',
    "form": b"text=a",
    "list": b"[]",
    "string": b'"text"',
    "null": b"null",
    "wrong type": b'{"text":{},"title":[],"reaction":7,"conversation_id":false,"turn_ids":"x","kind":3}',
    "unknown": b'{"no_such_field":1}',
}


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_a_body_that_cannot_be_read_or_meant_is_a_4xx_problem(
    client: httpx2.AsyncClient, refused: Refused, method: str, path: str
) -> None:
    for case, raw in MALFORMED.items():
        answer = await client.request(method, path, content=raw, headers={"Content-Type": "application/json"})

        body = refused(answer, 400, 422)
        assert "traceback" not in json.dumps(body).lower(), case


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


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/conv_" + "0" * 10_000,
        f"{BASE}/*",
        f"{BASE}/conv_%27%20OR%201=1%20--",
        f"{BASE}/%00",
        f"{BASE}/conv_{{x}}:y",
        f"{BASE}/{CONVERSATION.replace('0', chr(0x660))}",
        f"{BASE}/{CONVERSATION.upper()}",
        f"{BASE}/..%2f..%2fetc",
        "/conversations/a:b/default",
        "/conversations/default/%7Bx%7D",
        "/conversations/" + "x" * 65 + "/default",
        "/conversations/%00/default",
        "/conversations/default/\u202e",
        "/conversations/../default",
        "/no/such/route",
        f"{BASE}/",
    ],
)
async def test_odd_ids_and_paths_are_the_same_404(client: httpx2.AsyncClient, refused: Refused, path: str) -> None:
    body = refused(await client.get(path), 404)

    assert body["type"] == "urn:everturn:problem:not-found"


async def test_another_method_is_405_and_says_which_are_allowed(client: httpx2.AsyncClient, refused: Refused) -> None:
    for method in ("PUT", "OPTIONS", "TRACE", "HEAD"):
        answer = await client.request(method, f"{BASE}/{CONVERSATION}")
        assert answer.status_code == 405
        assert "GET" in answer.headers["allow"]
    refused(await client.put(f"{BASE}/{CONVERSATION}"), 405)


async def test_large_headers_are_431_and_larger_ones_are_refused(client: httpx2.AsyncClient, refused: Refused) -> None:
    refused(await client.get("/healthz", headers={"X-Large": "x" * 100_000}), 431)
    refused(await client.get("/healthz", headers=[(f"x-{n}", "y") for n in range(150)]), 431)
    assert (await client.get("/healthz", headers={"X-Large": "x" * 300_000})).status_code in (400, 431)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\x7f", "\xe9"])
async def test_a_bad_idempotency_key_is_malformed(client: httpx2.AsyncClient, refused: Refused, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    refused(await client.post(f"{BASE}/new/messages", json={"text": "a"}, headers=headers), 400)


POST = b"POST /conversations/default/default/new/messages HTTP/1.1\r\n"
HOST, JSON = b"Host: localhost\r\n", b"Content-Type: application/json\r\n"
RAW = {
    "length lie": POST + HOST + JSON + b"Content-Length: 5\r\n\r\n{}{}{}{}",
    "two lengths": POST + HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "bad chunk": POST + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "no host": POST + b"Content-Length: 2\r\n\r\n{}",
    "two hosts": POST + HOST + b"Host: evil\r\nContent-Length: 2\r\n\r\n{}",
    "no http": b"\x16\x03\x01\x00\x00",
    "bad header": POST + HOST + b"X: a\x00b\r\n\r\n",
}


@pytest.mark.parametrize("case", sorted(RAW))
async def test_broken_http_is_refused_without_a_hang(ingress: Any, client: httpx2.AsyncClient, case: str) -> None:
    parts = urlsplit(ingress.url)
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(RAW[case])
        await writer.drain()
        status = await reader.readline()
        writer.close()

    assert status.split()[1] in (b"400", b"403", b"415", b"422")
    assert (await client.get("/healthz")).status_code == 200


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
