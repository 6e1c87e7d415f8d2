"""A fork waits a limited time for a concurrent one with the same key."""

import pytest
from starlette.datastructures import Headers

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.lifecycle.forks import Fork, ForkRequest
from everturn.turns.inbox import IdempotencyKey, KeyBusy
from everturn_testing.core import FixedClock, SequentialIds
from ingress.admission.idempotency import CONCURRENT_WAIT_S
from ingress.errors import ProblemError
from ingress.lifecycle import ForkIn, ForkService

ANN = Principal("acme", "support", "ann")
SOURCE = ConversationId("conv_source")


class BusyForks:
    """The key belongs to another request for that many calls; each takes a second."""

    def __init__(self, clock: FixedClock, busy: int = 0) -> None:
        self.keys: list[IdempotencyKey | None] = []
        self._clock = clock
        self._busy = busy

    async def fork(
        self, principal: Principal, source_id: ConversationId, wish: ForkRequest, key: IdempotencyKey | None
    ) -> Fork:
        self.keys.append(key)
        self._clock.advance(1)
        if len(self.keys) <= self._busy:
            raise KeyBusy()
        return Fork(wish.fork_id, source_id, wish.turn_id or TurnId("turn_last"), 1, 3)


def make(busy: int = 0) -> tuple[ForkService, BusyForks]:
    clock = FixedClock()
    forks = BusyForks(clock, busy)
    return ForkService(forks, SequentialIds(), clock), forks


async def test_a_concurrent_fork_is_awaited() -> None:
    service, forks = make(busy=2)

    fork = await service.fork(ANN, SOURCE, ForkIn(), Headers({"Idempotency-Key": "a"}))

    assert (fork.source_id, len(forks.keys)) == (SOURCE, 3)


async def test_a_concurrent_fork_that_takes_too_long_is_a_conflict() -> None:
    service, forks = make(busy=99)

    with pytest.raises(KeyBusy):
        await service.fork(ANN, SOURCE, ForkIn(), Headers({"Idempotency-Key": "a"}))

    assert len(forks.keys) == CONCURRENT_WAIT_S


async def test_another_turn_is_another_request() -> None:
    service, forks = make()
    ids = SequentialIds()

    for turn_id in (None, ids.turn(), ids.turn()):
        await service.fork(ANN, SOURCE, ForkIn(turn_id=turn_id), Headers({"Idempotency-Key": "a"}))

    assert len({key.request_hash for key in forks.keys if key}) == 3


async def test_a_turn_that_is_no_id_is_absent() -> None:
    service, forks = make()

    with pytest.raises(ProblemError) as refused:
        await service.fork(ANN, SOURCE, ForkIn(turn_id="turn_x"), Headers())

    assert (refused.value.status_code, forks.keys) == (404, [])
