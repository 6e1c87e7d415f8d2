"""How a server ends: no new connections, and one limit for its streams and requests together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from ingress.__main__ import DrainingServer

LIMIT_S = 20.0
"""Far longer than the servers' own limits."""


async def never_answer(scope: Any, receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await asyncio.Event().wait()


async def test_a_server_ends_although_neither_its_streams_nor_a_request_do() -> None:
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    draining = asyncio.Event()

    async def drain() -> None:
        draining.set()
        await asyncio.Event().wait()

    config = uvicorn.Config(never_answer, port=0, lifespan="off", log_config=None)
    server = DrainingServer(config, drain=drain, drain_timeout_s=1.0, announce=listening.set_result)
    async with asyncio.timeout(LIMIT_S):
        serving = asyncio.create_task(server.serve())
        port = await listening
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"begun")

        server.should_exit = True
        await draining.wait()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

        await serving
        await reader.read()
    writer.close()
