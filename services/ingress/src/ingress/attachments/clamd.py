"""clamd on the wire: one connection per command, one limit for all of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from everturn.errors import Unavailable

CONNECT_TIMEOUT_S = 2.0
_CHUNK_BYTES = 2**16
_MAX_REPLY_BYTES = 4096
_SILENT = "The antivirus does not answer."

Address = tuple[str, int] | str
"""Host and port, or the path of a socket."""


def parse_address(url: str) -> Address:
    """`unix:///path` is a path, `tcp://host:port` a pair. Raises ValueError for anything else."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return parts.path
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        return parts.hostname, parts.port
    raise ValueError("CLAMD_URL must be tcp://host:port or unix:///path.")


async def ask(address: Address, command: str, *, timeout_s: float, stream: bytes | None = None) -> str:
    """The reply to one command, with `stream` sent behind it. Raises Unavailable when there is none in time."""
    try:
        async with asyncio.timeout(timeout_s), _connection(address) as (reader, writer):
            # clamd refuses a stream that is too long in the middle and says so before it hangs up.
            with suppress(ConnectionError):
                await _send(writer, command, stream)
            reply = await reader.readuntil(b"\0")
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Unavailable(_SILENT) from error
    return reply.removesuffix(b"\0").decode(errors="replace").strip()


@asynccontextmanager
async def _connection(address: Address) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        if isinstance(address, str):
            reader, writer = await asyncio.open_unix_connection(address, limit=_MAX_REPLY_BYTES)
        else:
            reader, writer = await asyncio.open_connection(*address, limit=_MAX_REPLY_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _send(writer: asyncio.StreamWriter, command: str, stream: bytes | None) -> None:
    writer.write(f"z{command}\0".encode())
    if stream is not None:
        for start in range(0, len(stream), _CHUNK_BYTES):
            piece = stream[start : start + _CHUNK_BYTES]
            writer.write(len(piece).to_bytes(4) + piece)
            await writer.drain()
        writer.write(bytes(4))
    await writer.drain()
