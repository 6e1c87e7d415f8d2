"""Workers that freeze, drain or lose Redis in the middle of a turn; every test ends with the history checker."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from everturn_local.servers.databases import DATABASE

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

RUNNING = 6
"""More than one worker has slots."""
LATE = 6
"""Messages, at least, that come while a worker drains or is gone."""


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def restored(harness: Any) -> AsyncIterator[None]:
    """Whatever a test stopped or froze runs again afterwards."""
    yield
    await harness.close()
    workers = ("worker-1", "worker-2")
    for worker in workers:
        if harness.platform.pid(worker) is not None:
            harness.platform.kill(worker, signal.SIGCONT)
    await asyncio.gather(*map(harness.platform.restart, workers))


async def test_a_resumed_frozen_worker_can_write_nothing(harness: Any) -> None:
    platform = harness.platform
    await platform.stop_part("worker-2")
    created = await harness.clients[0].create_conversation()
    watcher = harness.watch(created.conversation_id)
    sent = await harness.clients[0].send_message(created.conversation_id, "script:slow please")
    await watcher.wait_text(sent.turn_id, "answer")

    platform.kill("worker-1", signal.SIGSTOP)
    await platform.restart("worker-2")
    turn = await watcher.wait_ended(sent.turn_id)
    platform.kill("worker-1", signal.SIGCONT)
    later = await harness.clients[0].send_message(created.conversation_id, "script:plain please")
    await watcher.wait_ended(later.turn_id)

    assert turn.status == "completed"
    assert len([text for text in turn.texts if text.channel == "answer"]) == 1
    await harness.check_invariants(created.conversation_id, watcher)


async def test_an_emptied_redis_loses_no_turn_and_no_text(harness: Any) -> None:
    running = await harness.clients[0].send_message("new", "script:slow please")
    watchers = [harness.watch(running.conversation_id), harness.watch(running.conversation_id, ingress=1, cuts=3)]
    await watchers[0].wait_text(running.turn_id, "answer")
    await harness.platform.stop_part("worker-1")
    queued = [await harness.clients[0].send_message("new", "script:plain please") for _ in range(3)]

    harness.platform.redis.empty()
    await harness.platform.restart("worker-1")
    late = [harness.watch(sent.conversation_id) for sent in queued]

    turn = await watchers[0].wait_ended(running.turn_id)
    assert turn.status == "completed"
    await harness.check_invariants(running.conversation_id, *watchers)
    for sent, watcher in zip(queued, late, strict=True):
        assert (await watcher.wait_ended(sent.turn_id)).answer == "A plain answer."
        await harness.check_invariants(sent.conversation_id, watcher)


async def test_a_worker_draining_under_load_hands_over_its_turns(
    harness: Any,
) -> None:
    platform = harness.platform
    platform.auto_restart = False
    pid = platform.pid("worker-1")
    begun = [await harness.clients[n % 2].send_message("new", "script:twice please") for n in range(RUNNING)]
    watchers = [harness.watch(each.conversation_id, ingress=n % 2) for n, each in enumerate(begun)]
    for each, watcher in zip(begun, watchers, strict=True):
        await watcher.wait_text(each.turn_id, "thinking")
    fences = await load_fences(harness)
    begun_here = await load_held(harness, pid)
    assert begun_here

    log = platform.home.logs / "worker-1.log"
    drained_before = count_drains(log)
    platform.kill("worker-1", signal.SIGTERM)
    exiting = asyncio.create_task(platform.wait_exit("worker-1"))
    async with asyncio.timeout(30):
        while count_drains(log) == drained_before:  # noqa: ASYNC110 - only the log shows it
            await asyncio.sleep(0.02)
    mine, held = await load_held(harness, pid), set()
    answers: list[httpx2.Response] = []
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        while not exiting.done() or len(answers) < LATE:
            url = f"{harness.clients[len(answers) % 2].base_url}/conversations/default/default/new/messages"
            answers.append(await http.post(url, json={"text": "script:plain please"}))
            held |= await load_held(harness, pid)

    assert await exiting == 0
    assert held <= mine
    assert {answer.status_code for answer in answers} == {202}
    for each, watcher in zip(begun, watchers, strict=True):
        turn = await watcher.wait_ended(each.turn_id)
        assert (turn.status, len([text for text in turn.texts if text.channel == "answer"])) == ("completed", 1)
        await harness.check_invariants(each.conversation_id, watcher)
    later = await load_fences(harness)
    # Handed over between its rounds, and claimed by the other worker.
    assert any(later[conversation] > fences[conversation] for conversation in begun_here)
    for sent in (answer.json() for answer in answers):
        watcher = harness.watch(sent["conversation_id"])
        assert (await watcher.wait_ended(sent["turn_id"])).answer == "A plain answer."
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
        await harness.check_invariants(sent["conversation_id"], watcher)


async def load_held(harness: Any, pid: int) -> set[str]:
    """The conversations of which this process has the lease."""
    query = f"SELECT conversation_id FROM lease WHERE owner LIKE '%:{int(pid)}'"
    return set((await asyncio.to_thread(harness.platform.postgres.run_sql, query, database=DATABASE)).split())


async def load_fences(harness: Any) -> dict[str, int]:
    """The fence of each conversation's last claim."""
    query = "SELECT id || ':' || fence FROM conversation"
    rows = (await asyncio.to_thread(harness.platform.postgres.run_sql, query, database=DATABASE)).split()
    return {name: int(fence) for name, _, fence in (row.partition(":") for row in rows)}


def count_drains(log: Path) -> int:
    """How often the process has logged, in this file, that it drains."""
    return log.read_text().count("Worker is draining")
