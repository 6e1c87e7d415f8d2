"""Every test here ends with a look at the machine: what its runs had is gone, whatever was done to them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from leaks.detector import Watch, watching
from leaks.engines import BrokerView


@pytest_asyncio.fixture(autouse=True)
async def watch(sandbox: Any, request: pytest.FixtureRequest) -> AsyncIterator[Watch]:
    """Over this machine, and over the broker's pairs and the engine where runs are in containers."""
    name = "combined_broker" if request.node.callspec.params["sandbox"] == "combined" else "broker"
    views = [BrokerView(request.getfixturevalue(name).path)] if sandbox.image else []
    async with watching(*views) as looking:
        yield looking
        await looking.wait_nothing_left()
    for view in views:
        view.close()
