"""Event streams over real connections whose clients read slowly or not at all, or send what can't be read."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from ingress.admission.connections import WRITER_KEY, AddressCounts, ConnectionCaps, bind_protocol
from ingress.metrics import IngressMetrics
from ingress.stream.sse import EventStreamResponse

LIMIT_S = 30
CHUNK = b"data: " + b"x" * 2_000_000 + b"\n\n"
"""More than the kernels of both ends keep."""


class Streaming:
    """A server of one stream that begins with a large chunk, and writes to its connection `directly` or through ASGI.
    `closed` is set when its feed has ended."""

    def __init__(self, *, send_timeout_s: float, directly: bool) -> None:
        self._directly = directly
        self.metrics = IngressMetrics()
        self.closed = asyncio.Event()
        self.port = 0
        self._send_timeout_s = send_timeout_s

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        feed, writer = self._feed(), scope.get(WRITER_KEY) if self._directly else None
        await EventStreamResponse(feed, send_timeout_s=self._send_timeout_s, writer=writer)(scope, receive, send)

    async def _feed(self) -> AsyncGenerator[bytes]:
        try:
            yield CHUNK
            yield b": ping\n\n"
            await asyncio.Event().wait()
        finally:
            self.closed.set()


@asynccontextmanager
async def serve(*, send_timeout_s: float, directly: bool, connection_s: float = LIMIT_S) -> AsyncIterator[Streaming]:
    """`connection_s` is the limit of the connection itself for a client that reads nothing."""
    streaming = Streaming(send_timeout_s=send_timeout_s, directly=directly)
    caps = ConnectionCaps(connections=9, headers_s=LIMIT_S, send_s=connection_s, addresses=AddressCounts(9))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        streaming.port = listening.getsockname()[1]
        http = bind_protocol(caps, streaming.metrics)
        config = uvicorn.Config(streaming.answer, interface="asgi3", http=http, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield streaming
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, LIMIT_S)


@asynccontextmanager
async def ask(
    streaming: Streaming, request: bytes = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
) -> AsyncIterator[socket.socket]:
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", streaming.port))
        await loop.sock_sendall(client, request)
        yield client


@pytest.mark.parametrize("directly", [True, False])
@pytest.mark.parametrize("connection_s", [LIMIT_S, 0.1, 0.05])
async def test_a_client_that_reads_nothing_is_cut_without_an_error_of_the_server(
    caplog: pytest.LogCaptureFixture, connection_s: float, directly: bool
) -> None:
    caplog.set_level(logging.ERROR)
    serving = serve(send_timeout_s=0.1, connection_s=connection_s, directly=directly)
    async with serving as streaming, ask(streaming):
        await asyncio.wait_for(streaming.closed.wait(), LIMIT_S)

    assert not [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")]
    assert streaming.metrics.registry.get_sample_value("ingress_stuck_clients_total") == 1


@pytest.mark.parametrize("directly", [True, False])
async def test_a_client_that_reads_slowly_but_steadily_gets_a_large_chunk_whole(directly: bool) -> None:
    """Reading it takes longer than `send_timeout_s`."""
    loop = asyncio.get_running_loop()
    taken = bytearray()

    serving = serve(send_timeout_s=2.0, directly=directly)
    async with serving as streaming, ask(streaming) as client, asyncio.timeout(LIMIT_S):
        began_s = loop.time()
        while not taken.endswith(b": ping\n\n\r\n"):
            piece = await loop.sock_recv(client, 8_192)
            assert piece, "the stream was cut"
            taken += piece
            await asyncio.sleep(0.02)

    assert loop.time() - began_s > 3
    assert taken.count(b"x") >= 2_000_000


@pytest.mark.parametrize("directly", [True, False])
async def test_a_stream_whose_request_has_a_malformed_body_ends_without_an_error_of_the_server(
    caplog: pytest.LogCaptureFixture, directly: bool
) -> None:
    caplog.set_level(logging.ERROR)
    loop = asyncio.get_running_loop()
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    came = bytearray()

    serving = serve(send_timeout_s=LIMIT_S, directly=directly)
    async with serving as streaming, ask(streaming, request) as client, asyncio.timeout(LIMIT_S):
        while piece := await loop.sock_recv(client, 8_192):
            came += piece
        await streaming.closed.wait()

    assert came.startswith(b"HTTP/1.1 400 ")
    assert came.endswith(b"}"), "something followed the problem"
    assert not [record.getMessage() for record in caplog.records]
