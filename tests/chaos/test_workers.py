"""Workers that freeze, drain or lose the wire in the middle of a turn; every test ends with the history checker."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def restored(stage: Any) -> AsyncIterator[None]:
    """Whatever a test stopped or froze runs again after it."""
    yield
    await stage.close()
    workers = ("worker-1", "worker-2")
    for worker in workers:
        if stage.platform.pid(worker) is not None:
            stage.platform.kill(worker, signal.SIGCONT)
    await asyncio.gather(*map(stage.platform.restart, workers))


async def test_a_frozen_worker_that_comes_back_can_write_nothing(stage: Any) -> None:
    platform = stage.platform
    await platform.stop_part("worker-2")
    created = await stage.clients[0].create_conversation()
    watcher = stage.watch(created.conversation_id)
    sent = await stage.clients[0].send_message(created.conversation_id, "script:slow please")
    await watcher.wait_text(sent.turn_id, "answer")

    platform.kill("worker-1", signal.SIGSTOP)
    await platform.restart("worker-2")
    turn = await watcher.wait_ended(sent.turn_id)
    platform.kill("worker-1", signal.SIGCONT)
    later = await stage.clients[0].send_message(created.conversation_id, "script:plain please")
    await watcher.wait_ended(later.turn_id)

    assert turn.status == "completed"
    assert len([text for text in turn.texts if text.channel == "answer"]) == 1
    await stage.check_history(created.conversation_id, watcher)


async def test_an_emptied_redis_loses_no_turn_and_no_text(stage: Any) -> None:
    running = await stage.clients[0].send_message("new", "script:slow please")
    watchers = [stage.watch(running.conversation_id), stage.watch(running.conversation_id, ingress=1, cuts=3)]
    await watchers[0].wait_text(running.turn_id, "answer")
    await stage.platform.stop_part("worker-1")
    queued = [await stage.clients[0].send_message("new", "script:plain please") for _ in range(3)]

    stage.platform.redis.empty()
    await stage.platform.restart("worker-1")
    late = [stage.watch(sent.conversation_id) for sent in queued]

    turn = await watchers[0].wait_ended(running.turn_id)
    assert turn.status == "completed"
    await stage.check_history(running.conversation_id, *watchers)
    for sent, watcher in zip(queued, late, strict=True):
        assert (await watcher.wait_ended(sent.turn_id)).answer == "A plain answer."
        await stage.check_history(sent.conversation_id, watcher)


async def test_a_worker_that_drains_hands_its_turn_to_another(stage: Any) -> None:
    platform = stage.platform
    await platform.stop_part("worker-2")
    sent = await stage.clients[0].send_message("new", "script:write please")
    watcher = stage.watch(sent.conversation_id)
    await watcher.wait_text(sent.turn_id, "thinking")

    await platform.restart("worker-2")
    await platform.stop_part("worker-1")
    turn = await watcher.wait_ended(sent.turn_id)

    assert turn.status == "completed"
    assert [step.status for step in turn.steps] == ["completed"]
    await stage.check_history(sent.conversation_id, watcher)
