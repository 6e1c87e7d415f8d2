"""How bytes become requests: what is read alike in one piece or in many, and what ends a connection.

What is answered with a problem is in test_bad_input.py.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ingress.admission.connections import HEADER_BUFFER_BYTES, AddressCounts, ConnectionCaps, bind_protocol
from ingress.metrics import IngressMetrics

LIMIT_S = 30
HOST = b"Host: a\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

Seen = tuple[str, str, list[list[str]], str]
"""Method, path with query, headers without Host, and body of a request."""


class Echo:
    """An application that answers with what it read, without a length. `/wait` waits for the end of its connection."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.waiting, self.left = asyncio.Event(), asyncio.Event()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = [[name.decode(), value.decode()] for name, value in scope["headers"] if name != b"host"]
        path = scope["path"] + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        seen = (scope["method"], path, headers, body.decode())
        self.seen.append(seen)
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        if path == "/wait":
            self.waiting.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()
            return
        await send({"type": "http.response.body", "body": json.dumps(seen).encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serve() -> AsyncIterator[tuple[Echo, int]]:
    echo = Echo()
    caps = ConnectionCaps(connections=9, headers_s=LIMIT_S, send_s=LIMIT_S, addresses=AddressCounts(9))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        http = bind_protocol(caps, IngressMetrics())
        config = uvicorn.Config(echo.answer, interface="asgi3", http=http, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield echo, listening.getsockname()[1]
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, LIMIT_S)


async def exchange(port: int, *pieces: bytes) -> bytes:
    """The server's answer to what is sent in these pieces, until it closes the connection."""
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.002)
        came = await reader.read()
        writer.close()
        return came


def get(*lines: bytes, first: bytes = b"GET /x HTTP/1.1") -> bytes:
    return b"\r\n".join([first, b"Host: a", *lines, b"Connection: close", b"", b""])


CLOSE = ["connection", "close"]
UPGRADE = ["connection", "Upgrade, close"]
OFFER = b"Upgrade: h2c\r\nConnection: Upgrade, close\r\n"

READ: dict[str, tuple[bytes, Seen]] = {
    "blank lines before": (b"\r\n\r\n" + get(), ("GET", "/x", [CLOSE], "")),
    "an empty value": (get(b"X:", b"Y: z"), ("GET", "/x", [["x", ""], ["y", "z"], CLOSE], "")),
    "blanks around a value": (get(b"X: \t a b \t "), ("GET", "/x", [["x", "a b"], CLOSE], "")),
    "capitals": (get(b"X-Y: Z"), ("GET", "/x", [["x-y", "Z"], CLOSE], "")),
    "two slashes and a query": (get(first=b"GET //b/x?a=%20&b=?c HTTP/1.1"), ("GET", "//b/x?a=%20&b=?c", [CLOSE], "")),
    "an escaped path": (get(first=b"GET /%c3%a9%2F HTTP/1.1"), ("GET", "/é/", [CLOSE], "")),
    "characters that browsers escape": (get(first=b'GET /"<>^`{|}\\ HTTP/1.1'), ("GET", '/"<>^`{|}\\', [CLOSE], "")),
    "a length": (
        get(b"Content-Length: 5", first=b"POST /x HTTP/1.1") + b"ab\r\nc",
        ("POST", "/x", [["content-length", "5"], CLOSE], "ab\r\nc"),
    ),
    "chunks with extensions and trailers": (
        get(b"Transfer-Encoding: Chunked", first=b"POST /x HTTP/1.1")
        + b"2\r\nab\r\n3;x=y\r\ncde\r\n0\r\nAuthorization: forged\r\n\r\n",
        ("POST", "/x", [["transfer-encoding", "Chunked"], CLOSE], "abcde"),
    ),
    "an upgrade that nobody offers": (get(b"Upgrade: websocket"), ("GET", "/x", [["upgrade", "websocket"], CLOSE], "")),
    "an offer of HTTP/2": (b"GET /x HTTP/1.1\r\n" + HOST + OFFER + b"\r\n", ("GET", "/x", [UPGRADE], "")),
    "an offer of HTTP/2 with a body that looks like a request": (
        b"POST /x HTTP/1.1\r\n" + HOST + OFFER + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
        ("POST", "/x", [UPGRADE, ["content-length", str(len(HIDDEN))]], HIDDEN.decode()),
    ),
    "an offer of HTTP/2 with chunks": (
        b"POST /x HTTP/1.1\r\n" + HOST + OFFER + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        ("POST", "/x", [UPGRADE, ["transfer-encoding", "chunked"]], "ab"),
    ),
}  # fmt: skip
"""By name: a request that closes its connection, and what the application reads."""


@pytest.mark.parametrize("case", READ)
async def test_a_request_is_read_alike_whole_and_in_pieces(case: str) -> None:
    raw, seen = READ[case]
    async with serve() as (echo, port):
        answers = [await exchange(port, raw), await exchange(port, *(raw[at : at + 9] for at in range(0, len(raw), 9)))]

    assert echo.seen == [seen, seen]
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n0\r\n\r\n") for answer in answers)


@pytest.mark.parametrize("offer", [b"", b"Upgrade: h2c\r\nConnection: Upgrade\r\n"])
@pytest.mark.parametrize("follows", [HIDDEN, b"POST /hidden", b"nothing that could be meant\r\n\r\n"])
async def test_what_follows_a_request_before_its_response_is_not_read(follows: bytes, offer: bytes) -> None:
    with capture_logs() as logs:
        async with serve() as (echo, port):
            came = await exchange(port, b"GET /x HTTP/1.1\r\n" + HOST + offer + b"\r\n" + follows + get())

    assert logs == []
    assert [path for _, path, _, _ in echo.seen] == ["/x"]
    assert b"\r\nconnection: close\r\n" in came
    assert came.count(b"HTTP/1.1 ") == 1


async def test_a_running_request_notices_that_its_client_left_after_another_request() -> None:
    async with serve() as (echo, port), asyncio.timeout(LIMIT_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n")
        await echo.waiting.wait()
        writer.write(HIDDEN)
        writer.close()

        await echo.left.wait()

    assert [path for _, path, _, _ in echo.seen] == ["/wait"]


async def test_a_connection_is_used_again_after_a_response() -> None:
    async with serve() as (echo, port), asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(CHUNKED + b"2\r\nab\r\n0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()

    assert [body for *_, body in echo.seen] == ["ab", "ab", "ab"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_client_of_http_1_0_gets_a_body_without_chunks(method: str) -> None:
    async with serve() as (echo, port):
        came = await exchange(port, f"{method} /x HTTP/1.0\r\n\r\n".encode())

    head, _, body = came.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body == (json.dumps(echo.seen[0]).encode() if method == "GET" else b"")


@pytest.mark.parametrize("wanted", [b"keep-alive", b"close"])
async def test_a_client_of_http_1_0_gets_one_connection_header(wanted: bytes) -> None:
    async with serve() as (echo, port):
        echo.headers = [(b"Connection", wanted), (b"X", b"y")]
        came = await exchange(port, b"GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")

    head = came.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    assert [line for line in head if line.startswith((b"connection:", b"x:"))] == [b"x: y", b"connection: close"]


async def test_an_error_of_the_server_while_it_reads_a_request_is_logged_and_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = LookupError("a bug")

    def fail(_protocol: HttpToolsProtocol) -> None:
        raise failure

    monkeypatch.setattr(HttpToolsProtocol, "on_headers_complete", fail)
    with capture_logs() as lines:
        async with serve() as (echo, port):
            came = await exchange(port, get())

    assert came.startswith(b"HTTP/1.1 500 ")
    assert json.loads(came.partition(b"\r\n\r\n")[2])["type"] == "urn:everturn:problem:internal"
    assert b"a bug" not in came
    assert [line["exc_info"] for line in lines if line["log_level"] == "error"] == [failure]
    assert echo.seen == []


@pytest.mark.parametrize("begin", [b"GET /x HTTP/1.1\r\nX: ", CHUNKED + b"2\r\nab\r\n0\r\nX: ", CHUNKED + b"2;x="])
async def test_headers_trailers_and_extensions_that_do_not_end_are_refused(begin: bytes) -> None:
    pieces = [b"y" * HEADER_BUFFER_BYTES] * 8
    async with serve() as (_, port):
        came = await exchange(port, begin, *pieces)

    assert came.startswith(b"HTTP/1.1 431 ")
