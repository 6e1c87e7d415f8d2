"""The model server as the agent sees it: a port of the sandbox, whose connections go through its proxy."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

PROXY: Final = ("127.0.0.1", 3128)
MODEL_HOST: Final = "model.everturn:80"
_ANSWER_BYTES: Final = 8 << 10
_COPY_BYTES: Final = 64 << 10


@asynccontextmanager
async def open_model_server() -> AsyncGenerator[str]:
    """The base URL, without a path."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one connection. What breaks costs the agent this connection only."""
    with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError), contextlib.closing(writer):
        up_reader, up_writer = await asyncio.open_connection(*PROXY, limit=_ANSWER_BYTES)
        with contextlib.closing(up_writer):
            up_writer.write(f"CONNECT {MODEL_HOST} HTTP/1.1\r\nHost: {MODEL_HOST}\r\n\r\n".encode())
            answer = await up_reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer.split(b"\r\n")[0]:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_COPY_BYTES):
        sink.write(data)
        await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()
