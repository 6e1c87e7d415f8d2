"""A provider for the adapters."""

from collections.abc import AsyncIterator

import pytest
from helpers.provider import WireProvider, run_provider


@pytest.fixture
async def provider() -> AsyncIterator[WireProvider]:
    async with run_provider(WireProvider()) as wire:
        yield wire
