"""Frequent or concurrent callers cost no more than one computation."""

import asyncio

import pytest

from everturn.core.ttl_cache import TtlCache
from everturn_testing.core import FixedClock


class Looking:
    def __init__(self) -> None:
        self.looks = 0
        self.fails = False

    async def look(self) -> int:
        self.looks += 1
        await asyncio.sleep(0)
        if self.fails:
            raise ConnectionError
        return self.looks


async def test_concurrent_and_early_callers_share_one_computation() -> None:
    looking, clock = Looking(), FixedClock()
    kept = TtlCache(looking.look, keep_s=1.0, monotonic=clock.monotonic)

    together = await asyncio.gather(*(kept.load() for _ in range(20)))
    clock.advance(0.9)
    soon = await kept.load()
    clock.advance(0.2)
    later = await kept.load()

    assert (set(together), soon, later) == ({1}, 1, 2)


async def test_a_failed_or_cancelled_computation_is_not_cached() -> None:
    looking, clock = Looking(), FixedClock()
    kept = TtlCache(looking.look, keep_s=1.0, monotonic=clock.monotonic)

    looking.fails = True
    with pytest.raises(ConnectionError):
        await kept.load()
    looking.fails = False
    given_up = asyncio.create_task(kept.load())
    await asyncio.sleep(0)
    given_up.cancel()

    assert await kept.load() == looking.looks == 3
