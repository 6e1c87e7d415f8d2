"""A real ingress closes silent and slow connections, and limits their number."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from ingress.admission.limits import READING_PER_USER

LIMIT_S = 20
POST = b"POST /conversations/default/default/new/messages HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def bounded(start_ingress: Callable[..., Any]) -> Any:
    """A slow client is soon disconnected."""
    return start_ingress({"headers_s": 0.5})


@pytest.fixture(scope="module")
def small(start_ingress: Callable[..., Any]) -> Any:
    """Few connections and bodies are accepted, at any speed."""
    return start_ingress(CONNECTIONS_MAX="10", BODIES_MAX_BYTES="20000")


async def connect(ingress: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(ingress.url)
    return await asyncio.open_connection(parts.hostname, parts.port)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """The bytes until the server closes the connection."""
    async with asyncio.timeout(LIMIT_S):
        return await reader.read()


async def read_beside_writing(reader: asyncio.StreamReader) -> bytes:
    """The bytes until the connection ends. A byte that is still sent when the server has closed it makes a reset."""
    came = b""
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                came += piece
    return came


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send one byte at a time, forever."""
    while True:
        for n in range(len(data)):
            writer.write(data[n : n + 1])
            await writer.drain()
            await asyncio.sleep(0.05)


async def test_a_silent_client_is_disconnected(bounded: Any) -> None:
    reader, writer = await connect(bounded)

    assert await read_all(reader) == b""
    writer.close()


async def test_headers_that_drip_are_a_408_and_the_end(bounded: Any) -> None:
    reader, writer = await connect(bounded)
    dripping = asyncio.create_task(drip(writer, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10))

    answer = await read_beside_writing(reader)

    assert answer.startswith(b"HTTP/1.1 408")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "urn:everturn:problem:too-slow"
    dripping.cancel()
    await asyncio.wait([dripping])
    writer.close()


async def test_the_second_request_of_a_connection_may_not_drip_either(bounded: Any) -> None:
    reader, writer = await connect(bounded)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(LIMIT_S):
        await reader.readuntil(b'"ok"}')

    writer.write(b"GET /heal")

    assert b"408" in await read_all(reader)
    writer.close()


async def test_the_rest_of_a_refused_body_is_not_waited_for(bounded: Any) -> None:
    reader, writer = await connect(bounded)
    writer.write(POST + b"Content-Type: text/plain\r\nContent-Length: 4000\r\n\r\n")

    answer = await read_all(reader)

    assert answer.startswith(b"HTTP/1.1 415")
    writer.close()


async def test_an_idle_connection_between_requests_stays_open(bounded: Any) -> None:
    async with httpx2.AsyncClient(base_url=bounded.url, timeout=LIMIT_S) as http:
        first = await http.get("/healthz")
        stream = first.extensions["network_stream"].get_extra_info("client_addr")
        reader, writer = await connect(bounded)
        await read_all(reader)  # longer than headers may take
        writer.close()
        second = await http.get("/healthz")

        assert second.extensions["network_stream"].get_extra_info("client_addr") == stream


async def test_too_many_connections_are_a_503_and_the_others_go_on(small: Any) -> None:
    async with httpx2.AsyncClient(base_url=small.url, timeout=LIMIT_S) as http:
        await http.get("/healthz")
        open_ones = [await connect_from(small, f"127.0.1.{n}") for n in range(9)]
        reader, writer = await connect_from(small, "127.0.1.9")

        answer = await read_all(reader)

        assert answer.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: " in answer
        assert (await http.get("/healthz")).status_code == 200
        assert 'ingress_refusals_total{reason="connections",role="none"}' in (await http.get("/metrics")).text
    for idle, other in open_ones:
        other.write_eof()
        await read_all(idle)
        other.close()
    writer.close()


async def test_bodies_that_a_user_holds_are_bounded_and_released(small: Any, refused: Callable[..., Any]) -> None:
    path = "/conversations/default/default/new/messages"
    async with httpx2.AsyncClient(base_url=small.url, timeout=LIMIT_S) as http:
        refused(await http.post(path, json={"text": "x" * 6000}), 429)
        for _ in range(3):
            assert (await http.post(path, json={"text": "x" * 4000})).status_code == 202


async def connect_from(ingress: Any, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection from another address of this machine: all of 127.0.0.0/8 is its own."""
    parts = urlsplit(ingress.url)
    return await asyncio.open_connection(parts.hostname, parts.port, local_addr=(address, 0))


GET = b"GET /conversations/default/default HTTP/1.1\r\nHost: localhost\r\n\r\n"
FOLLOW = b"GET %b/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def shared(start_ingress: Callable[..., Any]) -> Any:
    """Some connections, of which one address without a known user has four."""
    return start_ingress({"headers_s": 300}, CONNECTIONS_MAX="24")


async def test_silent_connections_of_one_address_leave_room_for_others(shared: Any) -> None:
    silent = [await connect_from(shared, "127.0.0.2") for _ in range(4)]

    refused, _ = await connect_from(shared, "127.0.0.2")
    answer = await read_all(refused)
    reader, other = await connect_from(shared, "127.0.0.3")
    other.write(GET)

    assert answer.startswith(b"HTTP/1.1 429")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "urn:everturn:problem:too-many"
    assert b"Retry-After: " in answer
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    for _, writer in (*silent, (reader, other)):
        writer.close()


async def test_a_connection_that_serves_a_known_user_does_not_count(shared: Any) -> None:
    async with httpx2.AsyncClient(base_url=shared.url, timeout=20) as http:
        made = (await http.post("/conversations/default/default", json={})).json()
    path = f"/conversations/default/default/{made['conversation_id']}".encode()
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(6):
        reader, writer = await connect_from(shared, "127.0.0.4")
        streams.append((reader, writer))
        writer.write(FOLLOW % path)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    last, writer = await connect_from(shared, "127.0.0.4")
    writer.write(GET)

    assert (await last.readline()).startswith(b"HTTP/1.1 200")
    for _, open_one in (*streams, (last, writer)):
        open_one.close()


async def test_idle_connections_count_again_after_their_answer(shared: Any) -> None:
    idle = [await connect_from(shared, "127.0.0.5") for _ in range(4)]
    for reader, writer in idle:
        writer.write(GET)
        async with asyncio.timeout(LIMIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)

    refused, _ = await connect_from(shared, "127.0.0.5")

    assert (await read_all(refused)).startswith(b"HTTP/1.1 429")
    for _, writer in idle:
        writer.close()


async def test_a_trusted_proxy_is_not_counted_and_names_the_client(start_ingress: Callable[..., Any]) -> None:
    server = start_ingress(
        {"guests_per_minute": 5},
        CONNECTIONS_MAX="9",
        TRUSTED_PROXIES="127.0.0.6/32,10.0.0.0/8",
        EVERTURN_MODE="production",
        AUTH_ISSUER="i",
        AUTH_AUDIENCE="a",
        AUTH_SECRET="a secret that is long enough for HS256",
        GUEST_SCOPES="default/default",
    )

    async def come(client: str) -> bytes:
        reader, writer = await connect_from(server, "127.0.0.6")
        head = f"POST /guests/default/default HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {client}\r\nContent-Length: 0\r\n"
        writer.write(f"{head}\r\n".encode())
        status = (await reader.readline()).split()[1]
        open_writers.append(writer)
        return status

    open_writers: list[asyncio.StreamWriter] = []
    forged = [await come("192.0.2.1, 198.51.100.7"), await come("192.0.2.2, 198.51.100.7")]
    others = [await come("198.51.100.8"), await come("198.51.100.9, 10.1.2.3")]

    assert forged == [b"201", b"429"]
    assert others == [b"201", b"201"]
    for writer in open_writers:
        writer.close()


async def test_a_user_sends_only_so_many_bodies_at_once(start_ingress: Callable[..., Any]) -> None:
    server = start_ingress()
    dripping = [await connect(server) for _ in range(READING_PER_USER)]
    head = POST + b"Content-Type: application/json\r\nContent-Length: 100\r\nX-Dev-User: eve\r\n\r\n"
    for _, writer in dripping:
        writer.write(head + b"{")
    async with httpx2.AsyncClient(base_url=server.url, timeout=LIMIT_S) as http:
        mine = {"X-Dev-User": "eve"}
        async with asyncio.timeout(LIMIT_S):
            while (await http.post("/conversations/default/default", json={}, headers=mine)).status_code != 429:
                pass  # the server has not read all heads yet

        other = await http.post("/conversations/default/default", json={})
        read = await http.get("/conversations/default/default", headers=mine)

    assert (other.status_code, read.status_code) == (201, 200)
    for _, writer in dripping:
        writer.close()
