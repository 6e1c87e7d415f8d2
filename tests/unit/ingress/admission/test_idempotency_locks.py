"""IdempotencyLocks: which requests wait for each other, and for how long."""

import asyncio

import pytest

from everturn.core.identity import Principal
from everturn.turns.inbox import IdempotencyKey, KeyBusy
from everturn_testing.core import FixedClock
from ingress.admission.idempotency import CONCURRENT_WAIT_S, IdempotencyLocks, wait_for_concurrent_request

ME = Principal("t", "p", "me")
KEY = IdempotencyKey("messages", "k", "hash")


async def test_concurrent_requests_run_one_by_one_even_if_the_first_fails() -> None:
    locks = IdempotencyLocks(FixedClock())
    inside: list[int] = []
    most = 0

    async def come(n: int) -> None:
        nonlocal most
        async with locks.hold(ME, KEY):
            inside.append(n)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.remove(n)
            if not n:
                raise ValueError

    ended = await asyncio.gather(*(come(n) for n in range(4)), return_exceptions=True)

    assert most == 1
    assert [type(each) for each in ended] == [ValueError, *[type(None)] * 3]


@pytest.mark.parametrize(
    ("principal", "key"),
    [(ME, None), (ME, IdempotencyKey("signals", "k", "hash")), (Principal("t", "p", "you"), KEY)],
)
async def test_requests_with_other_keys_do_not_wait(principal: Principal, key: IdempotencyKey | None) -> None:
    locks = IdempotencyLocks(FixedClock(), wait_s=0)

    async with locks.hold(ME, KEY), locks.hold(principal, key):
        pass


async def test_a_wait_that_is_too_long_fails_and_the_next_request_gets_in() -> None:
    locks = IdempotencyLocks(FixedClock(), wait_s=0)

    async with locks.hold(ME, KEY):
        with pytest.raises(KeyBusy):
            async with locks.hold(ME, KEY):
                pass

    async with IdempotencyLocks(FixedClock()).hold(ME, KEY), locks.hold(ME, None):
        pass


async def test_a_wait_in_this_process_shortens_the_wait_for_another() -> None:
    clock = FixedClock()
    locks = IdempotencyLocks(clock)
    waited, asks = asyncio.Event(), 0

    async def commit() -> None:
        nonlocal asks
        asks += 1
        clock.advance(1)
        raise KeyBusy

    async def come() -> None:
        waited.set()
        async with locks.hold(ME, KEY) as left_s:
            await wait_for_concurrent_request(commit, clock, wait_s=left_s)

    async with locks.hold(ME, KEY) as left_s:
        coming = asyncio.create_task(come())
        await waited.wait()
        clock.advance(CONCURRENT_WAIT_S - 2)

    with pytest.raises(KeyBusy):
        await coming
    assert (left_s, asks) == (CONCURRENT_WAIT_S, 2)
