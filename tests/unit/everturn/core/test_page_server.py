"""The pages of a process: what is requested is served, and no client can block the process."""

import asyncio
import contextlib
import socket
import threading
from functools import partial
from urllib.parse import urlsplit

import httpx2
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from everturn.core.page_server import (
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    CantListen,
    Page,
    build_live_page,
    build_metrics_page,
    open_page_server,
)

PAGES = {"/metrics": build_metrics_page, "/livez": build_live_page}
ASKED = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
LONG = bytes(32 << 20)
"""More than the kernel takes for a client that doesn't read."""
open_pages = partial(open_page_server, "127.0.0.1", 0, setting="METRICS_LISTEN")


async def exchange(url: str, sent: bytes) -> bytes:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    with contextlib.closing(writer):
        writer.write(sent)
        return await reader.read()


async def wait_served(url: str) -> None:
    """Until a connection is accepted. Otherwise it is closed, and its unread request resets it."""
    answer = b""
    async with asyncio.timeout(60):
        while not answer.startswith(b"HTTP/1.1 200"):
            with contextlib.suppress(ConnectionResetError):
                answer = await exchange(url, ASKED)


async def read_all(line: socket.socket) -> int:
    """How many bytes there are until the line ends."""
    got, loop = 0, asyncio.get_running_loop()
    with contextlib.suppress(ConnectionResetError):
        while piece := await loop.sock_recv(line, 1 << 20):
            got += len(piece)
    return got


async def test_probes_and_prometheus_get_their_pages() -> None:
    async with open_pages(PAGES) as url, httpx2.AsyncClient(base_url=url) as http:
        alive, metrics = await http.get("/livez"), await http.get("/metrics?name=x")

    assert (alive.status_code, alive.text) == (200, "ok\n")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "python_info" in metrics.text


async def test_unknown_paths_and_methods_have_different_answers() -> None:
    async with open_pages(PAGES) as url, httpx2.AsyncClient(base_url=url) as http:
        assert (await http.get("/other")).status_code == 404
        assert (await http.post("/metrics", content=b"x")).status_code == 405


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET /livez HTTP/1.1\r\nA: " + b"a" * MAX_REQUEST_BYTES * 2])
async def test_an_invalid_request_is_closed_without_an_answer(sent: bytes) -> None:
    async with open_pages(PAGES) as url:
        with contextlib.suppress(ConnectionResetError):
            assert await exchange(url, sent) == b""

        assert (await exchange(url, ASKED)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTT"], ids=["nothing", "half a request"])
async def test_idle_connections_are_closed_and_make_room(sent: bytes) -> None:
    async with open_pages(PAGES, limit_s=0.2, max_connections=4) as url:
        ends = await asyncio.gather(*(exchange(url, sent) for _ in range(4)))

        assert ends == [b""] * 4
        await wait_served(url)


async def test_a_scrape_is_served_once_silent_connections_end() -> None:
    async with open_pages(PAGES, limit_s=60) as url:
        parts = urlsplit(url)
        lines = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(MAX_CONNECTIONS)]
        refused = await exchange(url, b"")
        for reader, writer in lines:
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()

        assert refused == b""
        assert (await exchange(url, ASKED)).startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async def build_long_page() -> Page:
        return Page(200, "text/plain", LONG)

    pages = {**PAGES, "/long": build_long_page}
    async with open_pages(pages, limit_s=0.2, max_connections=1) as url:
        parts, loop = urlsplit(url), asyncio.get_running_loop()
        with socket.socket() as line:
            line.setblocking(False)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            await loop.sock_connect(line, (parts.hostname, parts.port))
            await loop.sock_sendall(line, b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")

            await wait_served(url)
            got = await read_all(line)
    assert got < len(LONG)


async def test_silent_connections_are_bounded_and_end_with_the_server() -> None:
    async with open_pages(PAGES) as url:
        parts = urlsplit(url)
        lines = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(MAX_CONNECTIONS)]

        refused = await exchange(url, b"")

    ends = [await reader.read() for reader, _ in lines]
    for _, writer in lines:
        writer.close()
    assert refused == b""
    assert ends == [b""] * MAX_CONNECTIONS


async def test_the_page_has_the_metrics_of_its_registry_and_no_others() -> None:
    registry = CollectorRegistry()
    Counter("trial_things", "Things.", registry=registry).inc()
    pages = {"/metrics": partial(build_metrics_page, registry)}

    async with open_pages(pages) as url:
        page = await exchange(url, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")

    assert b"trial_things_total 1.0" in page
    assert b"everturn_" not in page


async def test_the_metrics_are_rendered_beside_the_event_loop() -> None:
    on_loop: list[bool] = []
    registry = CollectorRegistry()
    thread = Gauge("trial_thread", "Things.", registry=registry)
    thread.set_function(lambda: on_loop.append(threading.current_thread() is threading.main_thread()) or 0.0)

    assert b"trial_thread 0.0" in (await build_metrics_page(registry)).body

    assert on_loop == [False]


async def test_a_port_in_use_is_reported_with_a_remedy() -> None:
    async with open_pages(PAGES) as url:
        port = urlsplit(url).port or 0

        with pytest.raises(CantListen, match="METRICS_LISTEN"):
            async with open_page_server("127.0.0.1", port, PAGES, setting="METRICS_LISTEN"):
                pass
