"""Connections to MCP servers that do not end when they are closed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from chat_proc.mcp import connection as connections
from chat_proc.mcp.connection import McpConnection
from everturn.core import cancellation
from everturn.core.cancellation import Stragglers
from everturn.core.logging import Redactor
from everturn.core.loops import LOOPS


class StubbornTransport:
    """Never connects, and ignores some cancellations."""

    def __init__(self, ignored: int) -> None:
        self.ended = asyncio.Event()
        self.cancellations_left = ignored

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancellations_left -= 1
                if self.cancellations_left < 0:
                    raise
        yield

    def explain_end(self) -> str:
        return ""


async def begin(transport: StubbornTransport) -> tuple[McpConnection, asyncio.Task[None]]:
    async def ignore() -> None: ...

    connection = McpConnection("s", lambda: transport, start_timeout_s=60, on_change=ignore, redactor=Redactor())
    running = asyncio.create_task(connection.run())
    await asyncio.sleep(0.05)
    return connection, running


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CLOSE_S", 0.05)
    monkeypatch.setattr(cancellation, "_PROCESS_STRAGGLERS", Stragglers(grace_s=0.3))


async def test_a_cancellation_during_closing_is_not_lost() -> None:
    connection, running = await begin(StubbornTransport(ignored=1))
    closing = asyncio.create_task(connection.close(running))
    await asyncio.sleep(0.2)

    closing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.wait({running}, timeout=2)
    assert running.cancelled()


async def test_closing_has_a_limit_whatever_the_connection_does() -> None:
    transport = StubbornTransport(ignored=1_000)
    connection, running = await begin(transport)

    async with asyncio.timeout(3):
        await connection.close(running)

    assert not running.done()
    transport.cancellations_left = 0
    running.cancel()
    await asyncio.wait({running}, timeout=2)


async def test_a_closing_that_is_cancelled_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CLOSE_S", 30)
    connection, running = await begin(StubbornTransport(ignored=0))
    closing = asyncio.create_task(connection.close(running))
    await asyncio.sleep(0.05)

    closing.cancel()

    await asyncio.wait({closing, running}, timeout=2)
    assert closing.cancelled() and running.cancelled()


async def test_a_defect_of_one_connection_leaves_the_worker_ready() -> None:
    async def ignore() -> None: ...

    def fail() -> StubbornTransport:
        raise KeyError("a defect")

    connection = McpConnection("s", fail, start_timeout_s=60, on_change=ignore, redactor=Redactor())
    await connection.run(is_kept=False)

    assert "mcp_connection" not in LOOPS.failing
