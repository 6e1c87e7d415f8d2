"""F22: clocks that are hours apart, and step back in the middle of a turn, change neither order nor outcome."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from faults.chaos import Chaos

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

HOUR_S = 3600
WRONG = {
    "ingress-1": f"{HOUR_S}@1,{-HOUR_S}@30",
    "ingress-2": f"{-HOUR_S}@1",
    "worker-1": f"{HOUR_S}@1,{-HOUR_S}@120",
    "worker-2": f"{-HOUR_S}@1",
}


@pytest_asyncio.fixture(loop_scope="module")
async def wrong(chaos: Chaos) -> AsyncIterator[Chaos]:
    restarts = [chaos.platform.restart(part, extra_env={"CLOCK_STEPS": steps}) for part, steps in WRONG.items()]
    await asyncio.gather(*restarts)
    yield chaos
    await chaos.harness.close()
    await asyncio.gather(*map(chaos.platform.restart, WRONG))


async def test_a_turn_moves_between_workers_with_different_clocks(wrong: Chaos) -> None:
    harness, platform = wrong.harness, wrong.platform
    await platform.stop_part("worker-2")
    sent = await harness.clients[0].send_message("new", "script:slow please")
    watchers = [harness.watch(sent.conversation_id), harness.watch(sent.conversation_id, ingress=1, cuts=22)]
    await watchers[0].wait_text(sent.turn_id, "answer")

    platform.auto_restart = False
    platform.kill("worker-1")
    await platform.wait_exit("worker-1")
    await platform.restart("worker-2", extra_env={"CLOCK_STEPS": WRONG["worker-2"]})
    turn = await watchers[0].wait_ended(sent.turn_id)
    await platform.restart("worker-1", extra_env={"CLOCK_STEPS": WRONG["worker-1"]})
    later = [await harness.clients[n % 2].send_message(sent.conversation_id, "script:plain please") for n in range(3)]

    for watcher in watchers:
        for each in later:
            await watcher.wait_ended(each.turn_id)
        await watcher.wait_until(lambda w: w.state is not None and w.state.conversation.state == "idle")
    assert (turn.status, turn.outcome) == ("completed", "completed")
    assert turn.elapsed_ms is not None
    assert 0 < turn.elapsed_ms < HOUR_S * 1000
    state = await harness.check_invariants(sent.conversation_id, *watchers)
    assert [turn.ordinal for turn in state.turns] == list(range(1, len(state.turns) + 1))
