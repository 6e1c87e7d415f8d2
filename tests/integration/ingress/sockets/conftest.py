"""Socket.IO clients of the module's ingress."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from helpers.sockets import SocketClient
from helpers.streams import EventStream, OpenStream, Publisher, open_stream

from everturn.postgres.pool import Database
from everturn.redis_drivers import RedisDrivers

Connect = Callable[..., Awaitable[SocketClient]]


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
def worker(redis_drivers: RedisDrivers, worker_database: Database) -> Publisher:
    return Publisher(redis_drivers, worker_database)
