"""Backpressure from the queue's depth."""

import pytest

from everturn.errors import Unavailable
from ingress.admission.gate import WorkGate
from ingress.errors import ProblemError


class Depth:
    """The doorbells as the gate sees them."""

    def __init__(self, depth: int | None) -> None:
        self._depth = depth

    async def depth(self) -> int:
        if self._depth is None:
            raise Unavailable("Redis")
        return self._depth


def gate(depth: int | None) -> WorkGate:
    return WorkGate(Depth(depth), queue_max=10)  # type: ignore[arg-type]


async def test_below_its_maximum_work_is_admitted() -> None:
    await gate(9).admit(new_work=True)


async def test_a_full_queue_answers_503_and_says_when_to_come_back() -> None:
    with pytest.raises(ProblemError) as refused:
        await gate(10_000).admit(new_work=True)

    assert refused.value.status_code == 503
    assert refused.value.headers and 1 <= int(refused.value.headers["Retry-After"]) <= 60


async def test_signals_into_running_turns_pass_a_full_queue() -> None:
    await gate(10_000).admit(new_work=False)


async def test_a_queue_that_does_not_answer_is_a_503_for_both() -> None:
    for new_work in (True, False):
        with pytest.raises(ProblemError) as refused:
            await gate(None).admit(new_work=new_work)
        assert refused.value.status_code == 503
