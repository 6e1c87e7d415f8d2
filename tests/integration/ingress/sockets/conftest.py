"""Socket.IO clients of the module's ingress."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
import socketio
from parts.streams import EventStream, OpenStream, Publisher, open_stream

from everturn.postgres.database import Database
from everturn.redis.wire import Wire

WAIT_S = 15


class SocketClient:
    """An official Python client that keeps what it gets."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sio = socketio.AsyncClient(reconnection=False)
        self.events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.refusal: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sio.on("*", self._keep)
        self.sio.on("connect_error", self._keep_refusal)

    async def _keep(self, name: str, data: dict[str, Any]) -> None:
        self.events.put_nowait((name, data))

    async def _keep_refusal(self, data: Any) -> None:
        if not self.refusal.done():
            self.refusal.set_result(data)

    async def connect(self, *, headers: dict[str, str] | None = None, **auth: Any) -> "SocketClient":
        await self.sio.connect(
            self.url, headers=headers or {}, auth=auth or None, transports=["websocket"], wait_timeout=WAIT_S
        )
        return self

    async def refused(self, **how: Any) -> dict[str, Any]:
        """Connect in vain; the problem."""
        with pytest.raises(socketio.exceptions.ConnectionError):
            await self.connect(**how)
        return (await asyncio.wait_for(self.refusal, WAIT_S))["data"]

    async def call(self, name: str, payload: Any) -> dict[str, Any]:
        return await self.sio.call(name, payload, timeout=WAIT_S)

    async def next(self) -> tuple[str, dict[str, Any]]:
        return await asyncio.wait_for(self.events.get(), WAIT_S)

    async def until(self, name: str) -> dict[str, Any]:
        """The next event of this name; those before it are dropped."""
        while True:
            found, data = await self.next()
            if found == name:
                return data

    async def gone(self) -> None:
        await asyncio.wait_for(self.sio.wait(), WAIT_S)


Connect = Callable[..., Awaitable[SocketClient]]


@pytest.fixture
async def sockets(ingress: Any) -> AsyncIterator[Callable[..., SocketClient]]:
    """Makes clients that are not connected yet; all are disconnected at the end."""
    made: list[SocketClient] = []

    def make(url: str | None = None) -> SocketClient:
        made.append(SocketClient(url or ingress.url))
        return made[-1]

    yield make
    for each in made:
        await each.sio.disconnect()


@pytest.fixture
async def socket(sockets: Callable[..., SocketClient]) -> SocketClient:
    """A connected client in development mode."""
    return await sockets().connect()


@pytest.fixture
def follow(client: httpx2.AsyncClient) -> OpenStream:
    """Opens the events of a conversation on the module's ingress."""

    def start(conversation: str, **how: Any) -> AbstractAsyncContextManager[EventStream]:
        return open_stream(client, conversation, **how)

    return start


@pytest.fixture
def worker(wire: Wire, worker_database: Database) -> Publisher:
    return Publisher(wire, worker_database)
