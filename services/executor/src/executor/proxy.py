"""The HTTP proxy of a program with a network: a process of the sandbox, with the rights of its program and no others.

It speaks HTTP with clients of the program, and passes each connection on to the supervisor's socket, which the program
could use itself: nothing outside trusts what it says.
"""

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from everturn.execution.framing import FrameError, decode_message, encode_frame
from everturn.execution.messages import MAX_STREAMS, NETWORK_SOCKET, PROXY_PORT, OpenStream, StreamOpened
from everturn.execution.records import BadMessage, build_message, parse_message
from executor.channel import Channel

HEAD_BYTES: Final = 32 << 10
_COPY_BYTES: Final = 64 << 10
_REQUEST_TIMEOUT_S: Final = 30.0
_LENGTH: Final = struct.Struct(">I")
_HTTP_PORT: Final = 80
_OF_PROXY: Final = ("proxy-", "connection:", "keep-alive:")
_BROKEN: Final = (OSError, EOFError, ValueError, asyncio.LimitOverrunError, FrameError, BadMessage)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NotOpened(Exception):
    """The connection is refused; the text says why."""


def fork_proxy(channel: Channel | None) -> None:
    """Fork the process, once its port accepts connections. It ends with the sandbox."""
    listener = socket.create_server(("127.0.0.1", PROXY_PORT), backlog=MAX_STREAMS)
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if channel is not None:
            channel.close()
        try:
            asyncio.run(serve(listener))
        finally:
            # The fork must never return into the code of the runner.
            os._exit(1)
    listener.close()


async def serve(listener: socket.socket, network: str = NETWORK_SOCKET) -> None:
    """Serve clients until cancelled. As many as can have a stream are served at once; the others wait."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    free = asyncio.Semaphore(MAX_STREAMS)
    async with asyncio.TaskGroup() as clients:
        while True:
            await free.acquire()
            client, _ = await loop.sock_accept(listener)
            serving = clients.create_task(_serve_client(client, network))
            serving.add_done_callback(lambda _: free.release())


async def _serve_client(client: socket.socket, network: str) -> None:
    """Whatever a client does wrong costs it the connection."""
    reader, writer = await asyncio.open_connection(sock=client, limit=HEAD_BYTES)
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            await _carry((reader, writer), network, parse_request(head))
        except ValueError as error:
            await _answer(writer, 400, f"{error}")
        except NotOpened as refused:
            await _answer(writer, 403, f"{refused}")
    except* _BROKEN:
        _abort(writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    """A transport that has closed after its last bytes were sent raises AttributeError."""
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


async def _carry(client: Streams, network: str, request: "ProxyRequest") -> None:
    """Open the connection, and copy in both directions until both have ended. Raises NotOpened, or a group of
    OSErrors."""
    async with _open_stream(network, request) as server:
        if request.head:
            server[1].write(request.head)
        else:
            client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(client[0], server[1]))
            both.create_task(_copy(server[0], client[1]))
        for _, writer in (client, server):
            writer.close()
            await writer.wait_closed()


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """What a client asks for. `head` is the request as the server gets it; it is empty for a tunnel."""

    host: str
    port: int
    head: bytes = b""


def parse_request(head: bytes) -> ProxyRequest:
    """Parse a CONNECT, or a request for an address such as `http://host/path`. Raises ValueError."""
    line, *headers = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not (method.isascii() and method.isalpha()) or version not in ("HTTP/1.0", "HTTP/1.1"):
        raise ValueError("this is no request of HTTP/1.1")
    if method == "CONNECT":
        host, _, digits = target.rpartition(":")
        if not (host and digits.isascii() and digits.isdecimal() and len(digits) <= 5):
            raise ValueError("CONNECT needs host:port")
        return ProxyRequest(host, int(digits))
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname or parts.username is not None:
        raise ValueError("the proxy needs CONNECT, or an address that begins with http://")
    kept = [header for header in headers if not header.lower().startswith(_OF_PROXY)]
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    # The client's next request can be for another host, so it needs a connection of its own.
    text = "\r\n".join((f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""))
    return ProxyRequest(parts.hostname, _HTTP_PORT if parts.port is None else parts.port, text.encode("latin-1"))


@contextlib.asynccontextmanager
async def _open_stream(network: str, request: ProxyRequest) -> AsyncGenerator[Streams]:
    """The connection to the server. Raises NotOpened."""
    try:
        reader, writer = await asyncio.open_unix_connection(network)
    except OSError as error:
        raise NotOpened("This program can open no more connections.") from error
    try:
        writer.write(encode_frame(build_message(OpenStream(0, request.host, request.port))))
        size: int = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
        opened = parse_message(decode_message(await reader.readexactly(size)), StreamOpened)
        if opened.error:
            raise NotOpened(opened.error)
        yield reader, writer
    finally:
        _abort(writer)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_COPY_BYTES):
        target.write(data)
        await target.drain()
    target.write_eof()


async def _answer(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    """The first line has the reason too, because that is what clients show."""
    text = " ".join(reason.encode("ascii", "replace").decode().split())
    head = f"HTTP/1.1 {status} {text}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n{text}".encode("ascii"))
    writer.close()
    await writer.wait_closed()
