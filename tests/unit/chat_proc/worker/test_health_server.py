"""A worker's pages: what is asked for, and nothing that holds the worker up."""

import asyncio
import contextlib
from urllib.parse import urlsplit

import httpx2
import pytest

from chat_proc.worker.health_server import (
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    CantListen,
    build_live_page,
    build_metrics_page,
    open_health_server,
)

PAGES = {"/metrics": build_metrics_page, "/livez": build_live_page}


async def talk(url: str, sent: bytes) -> bytes:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    with contextlib.closing(writer):
        writer.write(sent)
        return await reader.read()


async def test_probes_and_prometheus_get_their_pages() -> None:
    async with open_health_server("127.0.0.1", 0, PAGES) as url, httpx2.AsyncClient(base_url=url) as http:
        alive, metrics = await http.get("/livez"), await http.get("/metrics?name=x")

    assert (alive.status_code, alive.text) == (200, "ok\n")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "everturn_turns_claimed_total" in metrics.text


async def test_another_path_and_another_method_are_told_apart() -> None:
    async with open_health_server("127.0.0.1", 0, PAGES) as url, httpx2.AsyncClient(base_url=url) as http:
        assert (await http.get("/other")).status_code == 404
        assert (await http.post("/metrics", content=b"x")).status_code == 405


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET /livez HTTP/1.1\r\nA: " + b"a" * MAX_REQUEST_BYTES * 2])
async def test_nonsense_is_let_go_without_an_answer(sent: bytes) -> None:
    async with open_health_server("127.0.0.1", 0, PAGES) as url:
        with contextlib.suppress(ConnectionResetError):
            assert await talk(url, sent) == b""

        assert (await talk(url, b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_connections_that_say_nothing_are_few_and_end_with_the_server() -> None:
    async with open_health_server("127.0.0.1", 0, PAGES) as url:
        parts = urlsplit(url)
        lines = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(MAX_CONNECTIONS)]

        refused = await talk(url, b"")

    ends = [await reader.read() for reader, _ in lines]
    for _, writer in lines:
        writer.close()
    assert refused == b""
    assert ends == [b""] * MAX_CONNECTIONS


async def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    async with open_health_server("127.0.0.1", 0, PAGES) as url:
        port = urlsplit(url).port or 0

        with pytest.raises(CantListen, match="METRICS_PORT"):
            async with open_health_server("127.0.0.1", port, PAGES):
                pass
