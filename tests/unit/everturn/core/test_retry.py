import pytest

from everturn.core.errors import Conflict, Unavailable
from everturn.core.retry import RetryPolicy


class Slept:
    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def failing(times: int, error: Exception):
    left = [error] * times

    async def call() -> str:
        if left:
            raise left.pop()
        return "done"

    return call


async def test_a_successful_call_is_made_once() -> None:
    slept = Slept()

    assert await RetryPolicy(sleep=slept.sleep).call(failing(0, Unavailable())) == "done"
    assert slept.pauses == []


async def test_an_unavailable_call_is_retried_after_each_pause() -> None:
    slept = Slept()

    assert (
        await RetryPolicy((1.0, 2.0, 3.0), sleep=slept.sleep, chance=lambda: 0.5).call(failing(2, Unavailable()))
        == "done"
    )
    assert slept.pauses == [1.0, 2.0]


async def test_after_the_last_pause_it_gives_up() -> None:
    with pytest.raises(Unavailable):
        await RetryPolicy((1.0,), sleep=Slept().sleep).call(failing(2, Unavailable()))


async def test_another_error_is_raised_at_once() -> None:
    slept = Slept()

    with pytest.raises(Conflict):
        await RetryPolicy(sleep=slept.sleep).call(failing(1, Conflict()))
    assert slept.pauses == []
