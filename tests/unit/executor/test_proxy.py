"""The proxy in front of a stand-in for the supervisor's socket: what clients get, whatever they send."""

import asyncio
import contextlib
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import MIB, OpenStream, StreamOpened
from everturn.execution.records import build_message, parse_message
from executor.proxy import HEAD_BYTES, parse_request, serve

WITHIN_S = 10


@contextlib.asynccontextmanager
async def open_proxy(tmp_path, error=""):
    """The proxy's port, and the requests that the supervisor gets. Each connection returns what it is sent."""
    requests = []

    async def answer(reader, writer):
        size = await reader.readexactly(4)
        [frame] = FrameDecoder().feed(size + await reader.readexactly(int.from_bytes(size, "big")))
        requests.append(parse_message(frame, OpenStream))
        writer.write(encode_frame(build_message(StreamOpened(0, error))))
        while data := await reader.read(1 << 16):
            if requests[-1].host == "broken.example.com":
                writer.transport.abort()
                return
            writer.write(data)
            await writer.drain()
        writer.close()

    path = str(tmp_path / "network.sock")
    server = await asyncio.start_unix_server(answer, path)
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(serve(listener, path))
    try:
        yield listener.getsockname()[1], requests
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
        server.close()
        listener.close()


async def talk(port, *pieces):
    """Send the pieces and the end; returns everything that comes back, or nothing if the connection breaks."""
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
            return await reader.read()


async def test_a_tunnel_carries_bytes_both_ways_and_ends_in_halves(tmp_path):
    payload = os.urandom(300_000)

    async with open_proxy(tmp_path) as (port, requests):
        got = await talk(port, b"CONNECT api.example.com:8443 HTTP/1.1\r\nHost: x\r\n\r\n" + payload)

    assert got == b"HTTP/1.1 200 Connection established\r\n\r\n" + payload
    assert requests == [OpenStream(0, "api.example.com", 8443)]


async def test_a_connection_that_breaks_is_the_only_one_that_ends(tmp_path):
    async with open_proxy(tmp_path) as (port, requests):
        for _ in range(3):
            got = await talk(port, b"CONNECT broken.example.com:443 HTTP/1.1\r\n\r\n", bytes(MIB), bytes(MIB))
            assert not got or got.startswith(b"HTTP/1.1 200 ")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT a.example.com:443 HTTP/1.1\r\n\r\n" + bytes(MIB))
        await reader.readuntil(b"\0")
        writer.transport.abort()
        assert await talk(port, b"CONNECT a.example.com:443 HTTP/1.1\r\n\r\nx")

    assert len(requests) == 5


async def test_a_plain_request_becomes_one_of_its_server(tmp_path):
    head = (
        b"POST http://api.example.com/a?b=http://c/ HTTP/1.1\r\nHost: api.example.com\r\n"
        b"Proxy-Connection: keep-alive\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\n"
        b"Content-Length: 2\r\n\r\nok"
    )

    async with open_proxy(tmp_path) as (port, requests):
        got = await talk(port, head)

    assert requests == [OpenStream(0, "api.example.com", 80)]
    assert got == (
        b"POST /a?b=http://c/ HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    )


async def test_a_refusal_is_in_the_first_line_of_the_answer(tmp_path):
    async with open_proxy(tmp_path, error="x:1 is not allowed.\r\nSet-Cookie: a=\u00fc") as (port, _):
        got = await talk(port, b"CONNECT x:1 HTTP/1.1\r\n\r\n")

    assert got.startswith(b"HTTP/1.1 403 x:1 is not allowed. Set-Cookie: a=?\r\nContent-Type")


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"CONNECT x HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"x" * 2 * HEAD_BYTES, b"CONN"],
)
async def test_what_is_no_request_ends_only_its_connection(tmp_path, data):
    async with open_proxy(tmp_path) as (port, requests):
        got = await talk(port, data)
        assert not got or got.startswith(b"HTTP/1.1 400 ")
        assert await talk(port, b"CONNECT a.example.com:443 HTTP/1.1\r\n\r\nx")

    assert len(requests) == 1


@given(
    st.binary(max_size=200)
    | st.builds(
        lambda method, target, rest: f"{method} {target} HTTP/1.1\r\n{rest}\r\n\r\n".encode("utf-8", "replace"),
        st.sampled_from(["CONNECT", "GET", "g\u00e9t"]),
        st.text(max_size=40) | st.builds("http://{}".format, st.text(max_size=40)),
        st.text(max_size=40),
    )
)
def test_every_head_is_refused_or_names_one_host(head):
    try:
        request = parse_request(head)
    except ValueError:
        return

    assert request.host and 0 <= request.port < 100_000
    assert not request.head or request.head.endswith(b"\r\nConnection: close\r\n\r\n")
