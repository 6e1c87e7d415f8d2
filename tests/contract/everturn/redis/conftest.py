"""The live wire over the session's Redis-protocol server, emptied for each test."""

from collections.abc import AsyncIterator

import pytest

from everturn.wire import Wire, open_wire


@pytest.fixture
async def wire(redis_url: str) -> AsyncIterator[Wire]:
    async with open_wire(redis_url, name="test") as opened:
        yield opened
