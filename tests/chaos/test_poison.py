"""F24: a turn that kills every worker that runs it fails, and nobody else is affected."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from platform_harness.harness import Harness

from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

BOUNDS = '{"lease_s": 4}'
"""Long enough that a worker which starts beside others renews in time: else a turn counts as one more that killed."""
GIVEN_UP_S = 120.0
"""Three leases, as many restarts with growing pauses, and the sweeper's own pauses, on a busy machine."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def poisoned(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    """Every worker dies in the first tool that it runs, also one that was started again."""
    script = Path(__file__).with_name("scripts.toml")
    env = {"EVERTURN_MODEL": f"scripted:{script}", WORKER_BOUNDS: BOUNDS, "FAILPOINT": "turn.in_tool:1:kill"}
    home = copy_home(tmp_path_factory.mktemp("poison"))
    async with Platform(home, ingresses=1, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        harness = Harness(platform)
        yield harness
        await harness.quit()


async def test_a_turn_that_kills_workers_fails_and_others_are_answered(poisoned: Harness) -> None:
    client = poisoned.clients[0]
    deadly = await client.send_message("new", "script:write please")
    watcher = poisoned.watch(deadly.conversation_id)
    others = [await client.send_message("new", "script:plain please") for _ in range(4)]
    watching = [poisoned.watch(each.conversation_id) for each in others]

    given_up = await watcher.wait_ended(deadly.turn_id, GIVEN_UP_S)

    assert given_up.status == "failed"
    assert given_up.error is not None
    assert given_up.error.type.endswith("turn-given-up")
    for each, other in zip(others, watching, strict=True):
        assert (await other.wait_ended(each.turn_id)).answer == "A plain answer."
        await poisoned.check_invariants(each.conversation_id, other)
    later = await client.send_message(deadly.conversation_id, "script:plain please")
    assert (await watcher.wait_ended(later.turn_id)).status == "completed"
    await poisoned.check_invariants(deadly.conversation_id, watcher)
