"""What was said in one turn is found by the next one, also when the worker died before it could be indexed."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from helpers.waiting import wait_until

from everturn_client.answers import Accepted
from everturn_client.client import EverturnClient
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SCRIPT = Path(__file__).with_name("memory_script.toml")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    home = copy_home(tmp_path_factory.mktemp("memory"))
    env = {"EVERTURN_MODEL": f"scripted:{SCRIPT}", "EMBEDDER": "minilm", WORKER_BOUNDS: '{"lease_s": 2}'}
    async with Platform(home, ingresses=1, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        yield platform


async def play(platform: Platform, text: str) -> str:
    """One turn in a new conversation, up to its end."""
    async with EverturnClient(platform.urls[0]) as client:
        sent = await client.send_message("new", text)
        await wait_announced(client, sent)
        return sent.turn_id


async def wait_announced(client: EverturnClient, sent: Accepted) -> None:
    async with asyncio.timeout(40):
        async for envelope in client.events(sent.conversation_id, "0-0"):
            if envelope.type in ("chat.complete", "chat.error"):
                return


async def wait_indexed(platform: Platform, turn_id: str) -> int:
    """The number of the turn's snippets, once it is indexed."""
    connection = await asyncpg.connect(platform.database.superuser)
    try:
        for _ in range(400):
            if await connection.fetchval("SELECT indexed_at IS NOT NULL FROM turn WHERE id = $1", turn_id):
                return await connection.fetchval("SELECT count(*) FROM snippet WHERE turn_id = $1", turn_id)
            await asyncio.sleep(0.1)
        raise AssertionError("the turn was not indexed")
    finally:
        await connection.close()


async def recall(platform: Platform) -> str:
    """What memory search gives a later turn, as the timeline has it."""
    turn_id = await play(platform, "script:recall please")
    connection = await asyncpg.connect(platform.database.superuser)
    try:
        return await connection.fetchval(
            "SELECT body FROM block WHERE turn_id = $1 AND type = 'react.tool.result'", turn_id
        )
    finally:
        await connection.close()


async def test_an_ended_turn_is_found_by_its_meaning_from_another_conversation(platform: Platform) -> None:
    turn_id = await play(platform, "script:tell we settled on a database")

    assert await wait_indexed(platform, turn_id) == 2

    found = await recall(platform)
    assert "Postgres keeps the zephyr data" in found
    assert turn_id in found


async def test_a_worker_killed_before_it_indexed_loses_nothing(platform: Platform) -> None:
    platform.auto_restart = False
    # The next worker's first look finds nothing then, and its second one is at the end of the turn.
    unindexed = "SELECT count(*) FROM turn WHERE indexed_at IS NULL"
    await wait_until(lambda: platform.postgres.run_sql(unindexed, database=DATABASE) == "0")
    await platform.restart("worker-1", extra_env={"FAILPOINT": "index.before_claim:2:kill"})
    async with EverturnClient(platform.urls[0]) as client:
        sent = await client.send_message("new", "script:tell and once more")
        # Or, where the turn takes longer than an indexer sleeps, in its middle.
        assert await platform.wait_exit("worker-1") == -signal.SIGKILL

        await platform.restart("worker-1")
        await wait_announced(client, sent)

    assert await wait_indexed(platform, sent.turn_id) == 2
