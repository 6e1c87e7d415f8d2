"""The broker's listeners: a Unix socket protected by file permissions, and a TCP port with mutual TLS."""

import asyncio
import contextlib
import grp
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from everturn.core.errors import Invalid
from everturn.core.loops import guarded
from everturn.core.settings import split_address
from everturn.core.transports import abort
from everturn.execution.broker_messages import KEEPALIVE, TLS_AUTHORITY, TLS_CERTIFICATE, TLS_DIR, TLS_KEY
from exec_supervisor.broker.settings import BrokerSettings

_log = structlog.stdlib.get_logger()

SOCKET_MODE: Final = 0o660
HANDSHAKE_TIMEOUT_S: Final = 10.0
BACKLOG: Final = 128
STREAM_BUFFER_BYTES: Final = 64 << 10

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_FLUSH_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses that the broker listens on. `tcp` is the actual host and port, empty without one."""

    socket: str
    tcp: str


@contextlib.asynccontextmanager
async def open_listeners(settings: BrokerSettings, serve: Serve, *, max_connections: int) -> AsyncGenerator[Addresses]:
    """Serve every connection until the block is left. Raises Invalid, OSError.

    Only the holder of the socket's identity can open it, so an existing file belongs to a dead broker.
    """
    context = build_tls_context(settings) if settings.tcp else None
    async with open_connections(serve, max_connections) as accept, contextlib.AsyncExitStack() as stack:
        listener = open_unix_socket(settings.socket, settings.socket_group)
        stack.callback(settings.socket.unlink, missing_ok=True)
        unix = await asyncio.start_unix_server(accept, sock=listener, limit=STREAM_BUFFER_BYTES, backlog=BACKLOG)
        stack.callback(unix.close)
        tcp = ""
        if context is not None:
            server = await open_tcp(settings.tcp, context, accept)
            stack.callback(server.close)
            host, port = server.sockets[0].getsockname()[:2]
            tcp = f"{host}:{port}"
        yield Addresses(str(settings.socket), tcp)


@contextlib.asynccontextmanager
async def open_connections(serve: Serve, max_connections: int) -> AsyncGenerator[Accept]:
    """Run a task per accepted connection. Connections above the limit are closed at once; at the end all are
    cancelled."""
    tasks: set[asyncio.Task[None]] = set()
    ended = False
    async with asyncio.TaskGroup() as group:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A handshake of TLS can end after the listener was closed.
            if ended or len(tasks) >= max_connections:
                writer.transport.abort()
                return
            task = group.create_task(_serve(serve, reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        try:
            yield accept
        finally:
            ended = True
            for task in tasks:
                task.cancel()


async def _serve(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection, then flush and close it."""
    try:
        with guarded("broker_connection", passing=(OSError, TimeoutError)):
            await serve(reader, writer)
        writer.close()
        async with asyncio.timeout(_FLUSH_S):
            await writer.wait_closed()
    except (OSError, TimeoutError) as error:
        _log.debug("Lost a connection", detail=str(error))
    finally:
        abort(writer)


def open_unix_socket(path: Path, group: str) -> socket.socket:
    """A bound socket with its permissions set; connections fail until it listens. Raises Invalid, OSError."""
    gid = find_group(group) if group else -1
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        os.chown(path, -1, gid)
    except OSError:
        listener.close()
        raise
    return listener


def find_group(group: str) -> int:
    """The number of a group that is given by name or number. Raises Invalid."""
    try:
        return int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise Invalid(f"BROKER_SOCKET_GROUP: there is no group {group!r}") from error


def build_tls_context(settings: BrokerSettings) -> ssl.SSLContext:
    """TLS 1.3 with the broker's certificate, for clients whose certificate the client CA has signed. Raises Invalid."""
    if settings.tls_dir is None:
        raise Invalid(f"BROKER_TCP needs {TLS_DIR}.")
    # Not a default context, which would also trust the system's CAs.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(settings.tls_dir / TLS_CERTIFICATE, settings.tls_dir / TLS_KEY)
        context.load_verify_locations(settings.tls_dir / TLS_AUTHORITY)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"The files in {TLS_DIR} can't be used: {error}") from error
    return context


async def open_tcp(
    address: str, context: ssl.SSLContext, accept: Accept, *, shutdown_timeout_s: float | None = None
) -> asyncio.Server:
    """Listen at `host:port` with TLS. The time limit is for the peer's part of closing it. Raises OSError."""
    host, port = split_address(address)
    server = await asyncio.start_server(
        accept,
        host,
        port,
        ssl=context,
        ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        ssl_shutdown_timeout=shutdown_timeout_s,
        limit=STREAM_BUFFER_BYTES,
        backlog=BACKLOG,
        start_serving=False,
    )
    for listener in server.sockets:
        for level, option, value in KEEPALIVE:
            # Connections inherit these options from their listener.
            listener.setsockopt(level, option, value)
    await server.start_serving()
    return server
