"""A client of event streams, and a worker's end of the wire."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from parts.streams import EventStream, OpenStream, Publisher, open_stream

from everturn.postgres.pool import Database
from everturn.wire import Wire


@pytest.fixture
def follow(client: httpx2.AsyncClient) -> OpenStream:
    """Opens the events of a conversation on the module's ingress."""

    def start(conversation: str, **how: Any) -> AbstractAsyncContextManager[EventStream]:
        return open_stream(client, conversation, **how)

    return start


@pytest.fixture
def worker(wire: Wire, worker_database: Database) -> Publisher:
    return Publisher(wire, worker_database)
