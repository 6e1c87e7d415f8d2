"""Which requests a worker takes, and that each is answered once: with a queue and bundles in memory."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.waiting import wait_until
from structlog.testing import capture_logs

from chat_proc.agent.kit import BundleKit
from chat_proc.bundles.versions import BundleLibrary, BundleUnavailable
from chat_proc.worker.bundle_operations import MAX_RUNNING, MAX_RUNNING_OF_BUNDLE, OperationRunner
from everturn.bundles.operations import OperationReply, OperationRequest
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal

REQUEST = OperationRequest("r1", "desk", "wait", Principal("acme", "one", "ann"), 30.0, b"{}")


class Desk:
    """The queue, the bundles and their operations; each operation waits until it is freed."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[OperationRequest]] = {}
        self.replies: dict[str, OperationReply] = {}
        self.cancelled: dict[str, asyncio.Event] = {}
        self.open = ["desk", "shop", "mall"]
        self.failures: list[Exception] = []
        self.free = asyncio.Event()
        self.running: list[str] = []
        self.changed = asyncio.Condition()
        self.runner = OperationRunner(self, cast("BundleLibrary[BundleKit]", self))

    # the queue
    async def take(self, bundle_ids: Sequence[str], *, timeout_s: float) -> OperationRequest | None:
        if self.failures:
            raise self.failures.pop()
        for bundle_id in bundle_ids:
            if self.waiting.get(bundle_id):
                return self.waiting[bundle_id].pop(0)
        await asyncio.sleep(0.005)
        return None

    async def reply(self, request_id: str, reply: OperationReply) -> None:
        assert request_id not in self.replies
        async with self.changed:
            self.replies[request_id] = reply
            self.changed.notify_all()

    async def wait_cancelled(self, request_id: str, *, timeout_s: float) -> bool:
        if request_id == "deaf":
            raise Unavailable("Redis")
        await self.cancelled.setdefault(request_id, asyncio.Event()).wait()
        return True

    async def send(self, request: OperationRequest) -> None: ...
    async def withdraw(self, request: OperationRequest) -> bool: ...
    async def cancel(self, request_id: str) -> None: ...
    async def wait_reply(self, request_id: str, *, timeout_s: float) -> OperationReply | None: ...

    # the bundles
    def list_operated(self) -> Sequence[str]:
        return self.open

    @asynccontextmanager
    async def use(self, bundle_id: str, digest: None) -> AsyncGenerator[Any]:
        if bundle_id == "gone":
            raise BundleUnavailable("gone")
        yield SimpleNamespace(operations=None if bundle_id == "mall" else self)

    async def execute(self, request: OperationRequest) -> OperationReply:
        if request.name == "break":
            raise ZeroDivisionError
        async with self.changed:
            self.running.append(request.request_id)
            self.changed.notify_all()
        try:
            await self.free.wait()
        finally:
            self.running.remove(request.request_id)
        return OperationReply("ok", b"1")

    def ask(self, *request_ids: str, bundle_id: str = "desk", name: str = "wait") -> None:
        asked = [replace(REQUEST, request_id=each, bundle_id=bundle_id, name=name) for each in request_ids]
        self.waiting.setdefault(bundle_id, []).extend(asked)

    async def wait_running(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.running) == count)

    async def wait_replies(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.replies) == count)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    running = asyncio.create_task(made.runner.run())
    async with asyncio.timeout(20):
        yield made
        made.free.set()
        made.runner.drain()
        await running


async def test_one_bundle_leaves_places_to_others_and_all_have_a_limit(desk: Desk):
    desk.ask(*(f"d{number}" for number in range(20)))
    await desk.wait_running(MAX_RUNNING_OF_BUNDLE)
    desk.ask(*(f"s{number}" for number in range(20)), bundle_id="shop")
    await desk.wait_running(MAX_RUNNING)
    await asyncio.sleep(0.05)

    assert len(desk.running) == MAX_RUNNING
    assert sum(each.startswith("d") for each in desk.running) == MAX_RUNNING_OF_BUNDLE
    desk.free.set()
    await desk.wait_replies(40)


async def test_bundles_take_turns(desk: Desk):
    desk.open = ["desk", "loud", "shop"]
    for bundle_id in ("desk", "loud"):
        desk.ask(*(f"{bundle_id}{number}" for number in range(50)), bundle_id=bundle_id)
    await desk.wait_running(MAX_RUNNING)
    desk.ask("s", bundle_id="shop")
    desk.free.set()
    await desk.wait_replies(101)

    assert list(desk.replies).index("s") < 20


async def test_a_cancelled_operation_ends_without_a_reply(desk: Desk):
    desk.ask("r1")
    await desk.wait_running(1)
    with capture_logs() as logs:
        desk.cancelled["r1"].set()
        await wait_until(lambda: any("outcome" in log for log in logs))

    assert [log["outcome"] for log in logs if "outcome" in log] == ["cancelled"]
    assert desk.replies == {}


async def test_every_request_that_was_taken_is_answered(desk: Desk):
    desk.failures = [Unavailable("Redis"), ZeroDivisionError()]
    desk.ask("r1", name="break")
    desk.open += ["gone"]
    desk.ask("r2", bundle_id="mall")
    desk.ask("r3", bundle_id="gone")
    desk.ask("deaf")
    desk.free.set()
    await desk.wait_replies(4)

    outcomes = {name: reply.outcome for name, reply in desk.replies.items()}
    assert outcomes == {"r1": "lost", "r2": "unknown", "r3": "unavailable", "deaf": "ok"}


async def test_a_drain_ends_what_was_taken_and_takes_no_more(desk: Desk):
    desk.ask("r1")
    await desk.wait_running(1)
    desk.runner.drain()
    await asyncio.sleep(0.02)
    desk.ask("r2")
    await asyncio.sleep(0.05)
    desk.free.set()
    await desk.wait_replies(1)

    assert desk.replies == {"r1": OperationReply("ok", b"1")}
    assert [each.request_id for each in desk.waiting["desk"]] == ["r2"]


async def test_a_worker_that_is_stopped_says_that_the_outcome_is_unknown():
    desk = Desk()
    running = asyncio.create_task(desk.runner.run())
    desk.ask("r1")
    async with asyncio.timeout(20):
        await desk.wait_running(1)
        running.cancel()
        await desk.wait_replies(1)
        await asyncio.wait({running})

    assert desk.replies["r1"] == OperationReply("lost", detail="The worker was stopped.")
