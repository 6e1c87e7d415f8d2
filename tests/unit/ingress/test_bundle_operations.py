"""What a caller gets when Redis fails on the way to a worker, and what happens to a request that is left."""

import asyncio
from collections.abc import Sequence

import pytest

from everturn.bundles.operations import OperationReply, OperationRequest, TooManyWaiting
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from ingress.admission.slots import OpenSlots
from ingress.bundle_operations import OperationCaller
from ingress.errors import ProblemError

REQUEST = OperationRequest("r1", "desk", "pay", Principal("acme", "one", "ann"), 30.0, b"{}")


class Queue:
    """Fails in the calls that are named; a request is taken by a worker once `is_taken`."""

    def __init__(self, *failing: str, is_taken: bool = False) -> None:
        self.failing = failing
        self.is_taken = is_taken
        self.calls: list[str] = []
        self.is_full = False

    def note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.failing:
            raise Unavailable("Redis")

    async def send(self, request: OperationRequest) -> None:
        if self.is_full:
            raise TooManyWaiting
        self.note("send")

    async def withdraw(self, request: OperationRequest) -> bool:
        self.note("withdraw")
        return not self.is_taken

    async def cancel(self, request_id: str) -> None:
        self.note("cancel")

    async def wait_reply(self, request_id: str, *, timeout_s: float) -> OperationReply | None:
        self.note("wait")
        if "forever" in self.failing:
            await asyncio.Event().wait()
        return None

    async def take(self, bundle_ids: Sequence[str], *, timeout_s: float) -> OperationRequest | None: ...
    async def reply(self, request_id: str, reply: OperationReply) -> None: ...
    async def wait_cancelled(self, request_id: str, *, timeout_s: float) -> bool: ...


def caller(queue: Queue) -> OperationCaller:
    return OperationCaller(queue, OpenSlots(max_total=1, max_per_user=1))


@pytest.mark.parametrize(
    ("queue", "status", "calls"),
    [
        (Queue(), 503, ["send", "wait", "withdraw"]),
        (Queue(is_taken=True), 502, ["send", "wait", "withdraw", "wait", "cancel"]),
        (Queue("send"), 503, ["send", "withdraw"]),
        (Queue("send", is_taken=True), 502, ["send", "withdraw", "cancel"]),
        (Queue("send", "withdraw"), 502, ["send", "withdraw"]),
        (Queue("wait"), 503, ["send", "wait", "withdraw"]),
        (Queue("wait", is_taken=True), 502, ["send", "wait", "withdraw", "cancel"]),
        (Queue("wait", "cancel", is_taken=True), 502, ["send", "wait", "withdraw", "cancel"]),
    ],
)
async def test_only_a_withdrawn_request_was_surely_not_executed(queue: Queue, status: int, calls: list[str]):
    with pytest.raises(ProblemError) as refused:
        await caller(queue).call(REQUEST, "irreversible")

    detail = refused.value.answer.detail
    assert refused.value.status_code == status
    assert queue.calls == calls
    assert ("It was not executed." in detail) is (status == 503)
    assert ("It may have had an effect" in detail) is (status == 502)


async def test_a_full_queue_is_a_503():
    queue = Queue()
    queue.is_full = True

    with pytest.raises(ProblemError) as refused:
        await caller(queue).call(REQUEST, "pure")

    assert refused.value.status_code == 503
    assert queue.calls == []


@pytest.mark.parametrize(("is_taken", "last"), [(False, "withdraw"), (True, "cancel")])
async def test_a_call_that_is_left_is_withdrawn_or_cancelled(is_taken: bool, last: str):
    queue = Queue("forever", is_taken=is_taken)
    call = asyncio.create_task(caller(queue).call(REQUEST, "pure"))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})

    assert call.cancelled()
    assert queue.calls[-1] == last
