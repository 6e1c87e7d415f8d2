"""Pairs of an engine in memory."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from helpers.memory_pairs import MemoryPairs
from prometheus_client import CollectorRegistry

from everturn.execution.messages import UidRange
from everturn.execution.profiles import ExecutionProfile
from exec_supervisor.broker.events import EventWatch
from exec_supervisor.broker.metrics import BrokerMetrics
from exec_supervisor.broker.pairs import Pairs, open_pairs

PROFILES = {"default": ExecutionProfile(), "warm": ExecutionProfile(warm=2, preload=("numpy",))}


@pytest.fixture
async def engine() -> MemoryPairs:
    return MemoryPairs()


@pytest.fixture
def registry() -> CollectorRegistry:
    """What the broker counts of `pairs`."""
    return CollectorRegistry()


@pytest.fixture
async def pairs(engine: MemoryPairs, registry: CollectorRegistry) -> AsyncGenerator[Pairs]:
    """Room for three pairs; waits for their end after the test."""
    watch = EventWatch(engine, asyncio.Event())
    following = asyncio.create_task(watch.run())
    async with open_pairs(
        engine,
        watch,
        PROFILES,
        max_pairs=3,
        uids=UidRange(21_000, 21_003),
        metrics=BrokerMetrics(registry),
        slot_wait_s=0.2,
    ) as opened:
        yield opened
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    assert not engine.pairs
