"""Twins: who waits for whom, and for how long."""

import asyncio

import pytest

from everturn.model.identity import Principal
from everturn.ports.inbox import IdempotencyKey, KeyBusy
from ingress.admission.twins import Twins

ME = Principal("t", "p", "me")
KEY = IdempotencyKey("messages", "k", "hash")


async def test_twins_come_one_after_another_also_when_the_first_fails() -> None:
    twins = Twins()
    inside: list[int] = []
    most = 0

    async def come(n: int) -> None:
        nonlocal most
        async with twins.alone(ME, KEY):
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
async def test_other_requests_wait_for_nobody(principal: Principal, key: IdempotencyKey | None) -> None:
    twins = Twins(wait_s=0)

    async with twins.alone(ME, KEY), twins.alone(principal, key):
        pass


async def test_a_twin_that_waits_too_long_is_told_so_and_the_next_one_comes_in() -> None:
    twins = Twins(wait_s=0)

    async with twins.alone(ME, KEY):
        with pytest.raises(KeyBusy):
            async with twins.alone(ME, KEY):
                pass

    async with Twins().alone(ME, KEY), twins.alone(ME, None):
        pass
