"""Requests for operations of bundles between an ingress and a worker, each as its own user of Redis."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from everturn.bundles import redis_operations
from everturn.bundles.operations import (
    MAX_WAITING,
    OperationReply,
    OperationRequest,
    TooManyWaiting,
    read_reply,
)
from everturn.bundles.redis_operations import RedisOperationQueue
from everturn.core.errors import Invalid
from everturn.core.identity import Principal, Role
from everturn.redis.users import INGRESS, WORKER
from everturn.redis_drivers import open_redis_drivers
from everturn_local.servers.redis import EmbeddedRedis

ANN = Principal("acme", "one", "ann", frozenset({Role.PAID, Role.REGISTERED}))
REQUEST = OperationRequest("r1", "desk", "list", ANN, 7.5, '{"text":"a\\nb ü"}\n'.encode())
WAIT_S = 20


@pytest.fixture
async def ingress(redis_server: EmbeddedRedis, redis_url: str) -> AsyncIterator[RedisOperationQueue]:
    async with open_redis_drivers(redis_server.service_url(INGRESS), name="ingress") as opened:
        yield opened.operations


@pytest.fixture
async def worker(redis_server: EmbeddedRedis, redis_url: str) -> AsyncIterator[RedisOperationQueue]:
    async with open_redis_drivers(redis_server.service_url(WORKER), name="worker") as opened:
        yield opened.operations


async def test_a_request_reaches_a_worker_and_its_reply_returns(
    ingress: RedisOperationQueue, worker: RedisOperationQueue
) -> None:
    waiting = asyncio.create_task(worker.take(["other", "desk"], timeout_s=WAIT_S))
    await ingress.send(REQUEST)
    taken = await waiting
    reply = OperationReply("invalid", b'{"a": 1}', "why\n", (("limit", "too large"),))
    await worker.reply("r1", reply)

    assert taken == REQUEST
    assert not await ingress.withdraw(REQUEST)
    assert await ingress.wait_reply("r1", timeout_s=WAIT_S) == reply
    assert await ingress.wait_reply("r1", timeout_s=0.05) is None


async def test_a_request_is_taken_once(ingress: RedisOperationQueue, worker: RedisOperationQueue) -> None:
    wanted = [replace(REQUEST, request_id=f"r{number}") for number in range(20)]
    takers = [asyncio.create_task(worker.take(["desk"], timeout_s=2)) for _ in range(30)]
    await asyncio.gather(*map(ingress.send, wanted))

    taken = [request.request_id for request in await asyncio.gather(*takers) if request is not None]

    assert sorted(taken) == sorted(request.request_id for request in wanted)


async def test_a_withdrawn_request_is_not_taken(ingress: RedisOperationQueue, worker: RedisOperationQueue) -> None:
    second = replace(REQUEST, request_id="r2")
    await ingress.send(REQUEST)
    await ingress.send(second)

    assert await ingress.withdraw(REQUEST)
    assert await worker.take(["desk"], timeout_s=WAIT_S) == second
    assert await worker.take(["desk"], timeout_s=0.05) is None


async def test_an_expired_request_is_not_taken(
    ingress: RedisOperationQueue, worker: RedisOperationQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_operations, "_KEPT_MS", 50)
    await ingress.send(REQUEST)
    await asyncio.sleep(0.1)
    monkeypatch.undo()
    # Its id is in the list again, as if the list had not expired with it.
    await ingress.send(replace(REQUEST, request_id="r2"))

    assert (await worker.take(["desk"], timeout_s=WAIT_S) or REQUEST).request_id == "r2"
    assert await worker.take(["desk"], timeout_s=0.05) is None


async def test_only_so_many_requests_of_a_bundle_wait(
    ingress: RedisOperationQueue, worker: RedisOperationQueue
) -> None:
    for number in range(MAX_WAITING):
        await ingress.send(replace(REQUEST, request_id=f"r{number}"))

    with pytest.raises(TooManyWaiting):
        await ingress.send(replace(REQUEST, request_id="more"))
    await ingress.send(replace(REQUEST, request_id="other", bundle_id="other"))
    assert await worker.take(["desk"], timeout_s=WAIT_S) == replace(REQUEST, request_id="r0")
    await ingress.send(replace(REQUEST, request_id="more"))


async def test_a_cancellation_reaches_the_worker(ingress: RedisOperationQueue, worker: RedisOperationQueue) -> None:
    waiting = asyncio.create_task(worker.wait_cancelled("r1", timeout_s=WAIT_S))
    await ingress.cancel("r1")

    assert await waiting
    assert not await worker.wait_cancelled("r2", timeout_s=0.05)


async def test_what_another_version_wrote_is_no_crash(
    ingress: RedisOperationQueue, worker: RedisOperationQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OperationRequest, "write", lambda _: b'{"request_id": 1}\n{}')
    await ingress.send(REQUEST)

    with pytest.raises(Invalid):
        await worker.take(["desk"], timeout_s=WAIT_S)
    assert read_reply(b'{"outcome": "postponed"}\n').outcome == "lost"
    assert read_reply(b'{"outcome": "ok", "more": 1}\n[1]') == OperationReply("ok", b"[1]")
