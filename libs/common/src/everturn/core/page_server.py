"""A few pages for probes and Prometheus, in processes that serve nothing else over HTTP: one GET per connection,
everything bounded."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import h11
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from everturn.core.errors import Invalid

_log = structlog.get_logger(__name__)

LIMIT_S: Final = 10.0
"""Seconds for one connection, from its beginning to the last byte of the answer: Prometheus' default scrape timeout.
Then it is closed, even if its client was silent, slow to send or slow to read."""
MAX_CONNECTIONS: Final = 16
"""At once: a few probes and Prometheus servers. Further connections are closed unread, so that clients can exhaust
neither files nor memory; silent ones are closed after LIMIT_S."""
MAX_REQUEST_BYTES: Final = 8_192
_READ_BYTES: Final = 4_096


class CantListen(Invalid):
    """Could not listen on the configured address."""


@dataclass(frozen=True, slots=True)
class Page:
    """One answer."""

    status: int
    media_type: str
    body: bytes


BuildPage = Callable[[], Awaitable[Page]]
_MISSING: Final = Page(404, "text/plain; charset=utf-8", b"Not found.\n")
_NOT_READ: Final = Page(405, "text/plain; charset=utf-8", b"Only GET is allowed.\n")
_ALIVE: Final = Page(200, "text/plain; charset=utf-8", b"ok\n")


async def build_live_page() -> Page:
    """A process with a blocked event loop can't answer this."""
    return _ALIVE


async def build_metrics_page(registry: CollectorRegistry = REGISTRY) -> Page:
    """All metrics of this registry: by default those of this process. Rendered in a thread, because many labels take
    tens of milliseconds."""
    return Page(200, CONTENT_TYPE_LATEST, await asyncio.to_thread(generate_latest, registry))


@contextlib.asynccontextmanager
async def open_page_server(
    host: str,
    port: int,
    pages: Mapping[str, BuildPage],
    *,
    setting: str,
    limit_s: float = LIMIT_S,
    max_connections: int = MAX_CONNECTIONS,
) -> AsyncGenerator[str]:
    """Serve these pages by path while the block runs; yields their URL. Port 0 is any free one.

    Raises CantListen, which names the `setting` of the address.
    """
    slots = asyncio.Semaphore(max_connections)
    serving: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            serving.add(task)
            task.add_done_callback(serving.discard)
        try:
            if not slots.locked():
                async with slots:
                    await _try_answer(pages, reader, writer, limit_s)
        finally:
            # Everything has been sent by now, and a normal close would wait for a client that doesn't read.
            writer.transport.abort()

    try:
        server = await asyncio.start_server(answer, host, port, limit=MAX_REQUEST_BYTES)
    except OSError as error:
        raise CantListen(f"Could not listen on {host}:{port}: {error}. Choose another {setting}.") from error
    bound: tuple[str, int] = server.sockets[0].getsockname()[:2]
    named = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
    try:
        yield f"http://{named}:{bound[1]}"
    finally:
        server.close()
        for task in tuple(serving):
            task.cancel()
        if serving:
            await asyncio.wait(set(serving), timeout=limit_s)


async def _try_answer(
    pages: Mapping[str, BuildPage], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit_s: float
) -> None:
    """Errors of the connection are only logged at debug level."""
    try:
        async with asyncio.timeout(limit_s):
            await _answer(pages, h11.Connection(h11.SERVER, MAX_REQUEST_BYTES), reader, writer)
    except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
        _log.debug("Could not answer a page request", error=str(error))


async def _answer(
    pages: Mapping[str, BuildPage], line: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    request = await _read_request(line, reader)
    if request is None:
        return
    page = await _choose(pages, request)()
    head = [("Content-Type", page.media_type), ("Content-Length", str(len(page.body))), ("Connection", "close")]
    # So that drain returns only when the kernel has all of it.
    writer.transport.set_write_buffer_limits(0)
    for event in (h11.Response(status_code=page.status, headers=head), h11.Data(page.body), h11.EndOfMessage()):
        writer.write(line.send(event) or b"")
    await writer.drain()


async def _read_request(line: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """None when the client disconnected first. Bodies are not read."""
    while True:
        event = line.next_event()
        if event is h11.NEED_DATA:
            line.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            return event
        else:
            return None


def _choose(pages: Mapping[str, BuildPage], request: h11.Request) -> BuildPage:
    if request.method != b"GET":
        return partial(_give, _NOT_READ)
    path = request.target.partition(b"?")[0].decode("ascii", "replace")
    return pages.get(path) or partial(_give, _MISSING)


async def _give(page: Page) -> Page:
    return page
