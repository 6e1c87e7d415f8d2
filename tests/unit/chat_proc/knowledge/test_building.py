"""The lease of a builder."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import pytest
from helpers.waiting import wait_until

from chat_proc.knowledge.building import LeaseLost, keep_lease
from everturn.core.errors import Unavailable
from everturn.knowledge.store import KnowledgeStore, SpaceVersion

VERSION = SpaceVersion("desk", "docs", "0" * 64, "hashed", untrusted=False)


class Leases:
    """What a store answers to renewals, the last answer again and again."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers: Iterator[bool | Exception] = iter(answers)
        self._last: bool | Exception = True
        self.renewals = 0

    async def save_documents(self, *given: object) -> bool:
        self.renewals += 1
        self._last = next(self._answers, self._last)
        if isinstance(self._last, Exception):
            raise self._last
        return self._last


async def build(leases: Leases, work: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(10), keep_lease(cast("KnowledgeStore", leases), VERSION, "me", 0.01):
        await work()


async def test_a_builder_ends_when_another_one_has_its_lease() -> None:
    with pytest.raises(LeaseLost):
        await build(Leases(True, False), asyncio.Event().wait)


@pytest.mark.parametrize("error", [Unavailable("It does not respond."), RuntimeError("unexpected")])
async def test_a_renewal_that_fails_is_repeated(error: Exception) -> None:
    leases = Leases(error, True)

    async def work() -> None:
        await wait_until(lambda: leases.renewals >= 4)

    await build(leases, work)


async def test_an_error_of_the_builder_is_not_a_lost_lease() -> None:
    async def work() -> None:
        raise TimeoutError("It took too long.")

    with pytest.raises(TimeoutError, match="too long"):
        await build(Leases(True), work)
