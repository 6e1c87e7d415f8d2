"""Many searches of one user in the encoder's shared queue."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from everturn.core.identity import Principal
from ingress.admission.slots import RETRY_AFTER_S
from ingress.errors import ProblemError
from ingress.search import AT_ONCE, OPEN, WAITING, SearchShares

ANN = Principal("acme", "support", "ann")
BOB = Principal("acme", "support", "bob")
NAMESAKE = Principal("other", "support", "ann")


class Searches:
    """Searches that run until they are released; `inside` holds their users."""

    def __init__(self) -> None:
        self.shares = SearchShares()
        self.inside: list[Principal] = []
        self.leave = asyncio.Event()

    async def search(self, principal: Principal) -> None:
        async with self.shares.acquire(principal):
            self.inside.append(principal)
            await self.leave.wait()

    @asynccontextmanager
    async def begun(self, *principals: Principal) -> AsyncGenerator[list[asyncio.Task[None]]]:
        """That many searches, as far as they get; they end with the block."""
        async with asyncio.TaskGroup() as group:
            yield [group.create_task(self.search(principal)) for principal in principals]
            self.leave.set()


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(3 * (AT_ONCE + WAITING)):
        await asyncio.sleep(0)


async def test_the_searches_of_others_do_not_stand_behind_those_of_one_user() -> None:
    searches = Searches()

    async with searches.begun(*[ANN] * (AT_ONCE + WAITING), BOB, NAMESAKE):
        await settle()

        assert searches.inside == [*[ANN] * AT_ONCE, BOB, NAMESAKE]
    assert searches.inside.count(ANN) == AT_ONCE + WAITING


async def test_one_more_than_may_wait_is_a_429_that_says_when_to_come_back() -> None:
    searches = Searches()

    async with searches.begun(*[ANN] * (AT_ONCE + WAITING)):
        await settle()
        with pytest.raises(ProblemError) as refused:
            await searches.search(ANN)

    assert refused.value.status_code == 429
    assert refused.value.headers == {"Retry-After": str(RETRY_AFTER_S)}


async def test_however_many_users_search_only_so_many_wait_for_the_encoder() -> None:
    searches = Searches()

    async with searches.begun(*(Principal("acme", "support", f"u{n}") for n in range(OPEN))) as tasks:
        await settle()
        with pytest.raises(ProblemError) as refused:
            await searches.search(ANN)
        tasks[0].cancel()
        await settle()
        again = asyncio.create_task(searches.search(ANN))
        await settle()
        assert ANN in searches.inside
    await again

    assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": str(RETRY_AFTER_S)})


async def test_a_cancelled_search_gives_its_place_back() -> None:
    searches = Searches()

    async with searches.begun(*[ANN] * (AT_ONCE + WAITING)) as tasks:
        await settle()
        tasks[-1].cancel()
        await settle()
        again = asyncio.create_task(searches.search(ANN))
        await settle()

        assert not again.done()
    await again


async def test_a_search_that_fails_gives_its_place_back() -> None:
    shares = SearchShares()

    for _ in range(AT_ONCE + WAITING + 1):
        with pytest.raises(RuntimeError, match="broken"):
            async with shares.acquire(ANN):
                raise RuntimeError("broken")
