"""A client of event streams, and a worker that publishes to Redis."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from helpers.streams import EventStream, OpenStream, Publisher, open_stream

from everturn.postgres.pool import Database
from everturn.redis_drivers import RedisDrivers


@pytest.fixture
def follow(client: httpx2.AsyncClient) -> OpenStream:
    """Opens the events of a conversation on the module's ingress."""

    def start(conversation: str, **how: Any) -> AbstractAsyncContextManager[EventStream]:
        return open_stream(client, conversation, **how)

    return start


@pytest.fixture
def worker(redis_drivers: RedisDrivers, worker_database: Database) -> Publisher:
    return Publisher(redis_drivers, worker_database)
