"""Turns that wait for long programs lose nothing when workers die, drain or freeze."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS

from everturn_local.servers.databases import DATABASE

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

EXTRA_ENV = {
    "EXECUTION_PROFILES": '{"default": {"detach_after_s": 0.1}}',
    WORKER_BOUNDS: '{"lease_s": 3, "orphans_after_s": 4, "detached_hold_s": 3}',
}
TURNS = 6


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def restored(harness: Any) -> AsyncIterator[None]:
    """Both workers run again after a test."""
    yield
    await harness.close()
    for worker in ("worker-1", "worker-2"):
        if harness.platform.pid(worker) is not None:
            harness.platform.kill(worker, signal.SIGCONT)
        await harness.platform.restart(worker)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(signal.SIGKILL, id="dies"),
        pytest.param(signal.SIGTERM, id="drains", marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, id="freezes", marks=pytest.mark.slow),
    ],
)
async def test_turns_whose_programs_are_lost_with_their_worker_end_once(harness: Any, end: signal.Signals) -> None:
    platform = harness.platform
    sent = [await harness.clients[n % 2].send_message("new", "script:long please") for n in range(TURNS)]
    watchers = [harness.watch(each.conversation_id, ingress=n % 2, cuts=n % 2) for n, each in enumerate(sent)]
    holders = await wait_detached(harness, TURNS)
    assert await query(harness, "SELECT owner FROM lease") == []
    pid = platform.pid("worker-1")
    assert 0 < sum(holder.endswith(f":{pid}") for holder in holders) < TURNS

    platform.kill("worker-1", end)
    for each, watcher in zip(sent, watchers, strict=True):
        turn = await watcher.wait_ended(each.turn_id)
        assert (turn.status, turn.answer) == ("completed", "The long program has ended.")
        assert [file.filename for file in turn.files] == ["lot.txt"]
    if end is signal.SIGSTOP:
        platform.kill("worker-1", signal.SIGCONT)

    for each, watcher in zip(sent, watchers, strict=True):
        await harness.check_invariants(each.conversation_id, watcher)


@pytest.mark.slow
async def test_a_cancel_ends_a_program_whose_turn_waits_for_it(harness: Any) -> None:
    client = harness.clients[0]
    sent = await client.send_message("new", "script:long please")
    watcher = harness.watch(sent.conversation_id)
    await wait_detached(harness, 1)

    await client.send_signal(sent.conversation_id, "cancel")
    turn = await watcher.wait_ended(sent.turn_id)

    assert turn.status == "cancelled"
    await harness.check_invariants(sent.conversation_id, watcher)


async def wait_detached(harness: Any, count: int) -> list[str]:
    """The workers that monitor the runs, once so many turns wait for theirs."""
    found = "SELECT r.holder FROM detached_run r JOIN turn t ON t.id = r.turn_id WHERE t.status = 'waiting'"
    async with asyncio.timeout(30):
        while len(holders := await query(harness, found)) < count:  # noqa: ASYNC110 - only the rows show it
            await asyncio.sleep(0.1)
    return holders


async def query(harness: Any, statement: str) -> list[str]:
    printed = await asyncio.to_thread(harness.platform.postgres.run_sql, statement, database=DATABASE)
    return printed.split()
