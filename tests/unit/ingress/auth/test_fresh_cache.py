"""Answers are kept for a bounded time and in a bounded number."""

import pytest

from everturn.core.errors import Unavailable
from everturn_testing.core import FixedClock
from ingress.auth.revocation import FreshCache


class Source:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    async def load(self, question: str) -> int:
        self.asked.append(question)
        if self.down:
            raise Unavailable("down")
        return len(self.asked)


async def test_an_old_answer_is_loaded_again() -> None:
    clock, source = FixedClock(), Source()
    cache = FreshCache(source.load, monotonic=clock.monotonic, max_age_s=15)

    first = [await cache.get("a"), await cache.get("a")]
    clock.advance(15)

    assert first == [1, 1]
    assert await cache.get("a") == 2


async def test_an_error_is_not_kept() -> None:
    clock, source = FixedClock(), Source()
    cache = FreshCache(source.load, monotonic=clock.monotonic, max_age_s=15)
    source.down = True

    with pytest.raises(Unavailable):
        await cache.get("a")
    source.down = False

    assert await cache.get("a") == 2


async def test_of_too_many_the_oldest_is_forgotten() -> None:
    source = Source()
    cache = FreshCache(source.load, monotonic=FixedClock().monotonic, max_age_s=15, max_entries=2)

    for question in ("a", "b", "c", "b", "c", "a"):
        await cache.get(question)

    assert source.asked == ["a", "b", "c", "a"]
