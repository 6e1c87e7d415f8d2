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
    """Fails in the calls that are named; a request is taken by a worker once `is_taken`. `end` is what became of it:
    still waiting, withdrawn, cancelled at its worker, or none of these because it was not sent."""

    def __init__(self, *failing: str, is_taken: bool = False) -> None:
        self.failing = failing
        self.is_taken = is_taken
        self.end = ""
        self.is_full = False

    def check(self, call: str) -> None:
        if call in self.failing:
            raise Unavailable("Redis")

    async def send(self, request: OperationRequest) -> None:
        if self.is_full:
            raise TooManyWaiting
        # The command may have arrived, although its reply is lost.
        self.end = "waiting"
        self.check("send")

    async def withdraw(self, request: OperationRequest) -> bool:
        self.check("withdraw")
        if not self.is_taken:
            self.end = "withdrawn"
        return not self.is_taken

    async def cancel(self, request_id: str) -> None:
        self.check("cancel")
        self.end = "cancelled"

    async def wait_reply(self, request_id: str, *, timeout_s: float) -> OperationReply | None:
        self.check("wait")
        if "forever" in self.failing:
            await asyncio.Event().wait()
        return None

    async def take(self, bundle_ids: Sequence[str], *, timeout_s: float) -> OperationRequest | None: ...
    async def reply(self, request_id: str, reply: OperationReply) -> None: ...
    async def wait_cancelled(self, request_id: str, *, timeout_s: float) -> bool: ...


def caller(queue: Queue) -> OperationCaller:
    return OperationCaller(queue, OpenSlots(max_total=1, max_per_user=1))


@pytest.mark.parametrize(
    ("queue", "status", "end"),
    [
        (Queue(), 503, "withdrawn"),
        (Queue(is_taken=True), 502, "cancelled"),
        (Queue("send"), 503, "withdrawn"),
        (Queue("send", is_taken=True), 502, "cancelled"),
        (Queue("send", "withdraw"), 502, "waiting"),
        (Queue("wait"), 503, "withdrawn"),
        (Queue("wait", is_taken=True), 502, "cancelled"),
        (Queue("wait", "cancel", is_taken=True), 502, "waiting"),
    ],
)
async def test_only_a_withdrawn_request_was_surely_not_executed(queue: Queue, status: int, end: str):
    with pytest.raises(ProblemError) as refused:
        await caller(queue).call(REQUEST, "irreversible")

    detail = refused.value.answer.detail
    assert refused.value.status_code == status
    assert queue.end == end
    assert ("It was not executed." in detail) is (status == 503)
    assert ("It may have had an effect" in detail) is (status == 502)


async def test_a_full_queue_is_a_503():
    queue = Queue()
    queue.is_full = True

    with pytest.raises(ProblemError) as refused:
        await caller(queue).call(REQUEST, "pure")

    assert refused.value.status_code == 503
    assert queue.end == ""


@pytest.mark.parametrize(("is_taken", "end"), [(False, "withdrawn"), (True, "cancelled")])
async def test_a_call_that_is_left_is_withdrawn_or_cancelled(is_taken: bool, end: str):
    queue = Queue("forever", is_taken=is_taken)
    call = asyncio.create_task(caller(queue).call(REQUEST, "pure"))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})

    assert call.cancelled()
    assert queue.end == end
