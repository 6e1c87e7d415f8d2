"""Rows, hints and entries of a newer version, read by this version's ingress.

Nothing ends, what is known goes on, and what is unknown is shown neutrally or passed over.
"""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from everturn.events.redis import HINTS
from everturn.postgres.pool import Database, open_database
from everturn.redis_drivers import RedisDrivers
from everturn_local.servers.databases import DatabaseUrls

SKIP = (":", "conv_status", "chat_signal", "conv_title", "stream_snapshot", "stream_gap", "ready")
# What a newer version's migration does to the tables before its services write to them.
NEWER = """
ALTER TABLE signal DROP CONSTRAINT IF EXISTS signal_kind_check, DROP CONSTRAINT IF EXISTS signal_state_check;
ALTER TABLE conversation DROP CONSTRAINT IF EXISTS conversation_state_check;
ALTER TABLE signal ADD COLUMN IF NOT EXISTS mood text NOT NULL DEFAULT 'good';
ALTER TABLE turn ADD COLUMN IF NOT EXISTS mood text NOT NULL DEFAULT 'good';
"""


@pytest.fixture
async def newer(database: DatabaseUrls) -> AsyncIterator[Database]:
    """The database after the newer version's migration, as a superuser sees it."""
    async with open_database(database.superuser, pool_size=1, application_name="test-newer") as opened:
        async with opened.connection() as connection:
            await connection.execute(NEWER)
        yield opened


async def hint(redis_drivers: RedisDrivers, text: str) -> None:
    client: Any = redis_drivers.hints._client  # pyright: ignore[reportPrivateUsage]
    await client.publish(HINTS, text)


async def change(newer: Database, statement: str, *arguments: object) -> None:
    async with newer.connection() as connection:
        await connection.execute(statement, *arguments)


async def test_signals_of_unknown_kinds_and_states_end_nothing(
    chat: Any, follow: Any, worker: Any, redis_drivers: RedisDrivers, newer: Database, client: httpx2.AsyncClient
) -> None:
    mine, other = (await chat.send("hello"))["conversation_id"], (await chat.send("other"))["conversation_id"]
    await worker.claim(mine)
    await worker.claim(other)
    signal = (await chat.send("and this", mine))["signal_id"]
    await change(newer, "UPDATE signal SET kind = 'pause', state = 'parked' WHERE id = $1", signal)
    await change(newer, "UPDATE turn SET lane = 'gold' WHERE conversation_id = $1", mine)

    async with follow(mine) as stream, follow(other) as neighbour:
        await stream.until("stream_snapshot", skip=("ready",))
        await neighbour.until("stream_snapshot", skip=("ready",))
        for _ in range(10):
            await hint(redis_drivers, f"signal {mine} {signal}")
        await hint(redis_drivers, f"weather {mine} {signal} and more")
        received = await stream.until("chat_signal", skip=(":", "conv_status", "conv_title"))
        await worker.say(mine, "a")
        await stream.until("chat_delta", skip=SKIP)
        await worker.say(other, "b")
        await neighbour.until("chat_delta", skip=SKIP)

    assert (received.data.data.kind, received.data.data.state) == ("unknown", "unknown")
    signals = (await chat.state(mine))["turns"][0]["signals"]
    assert [(each["signal_id"], each["kind"]) for each in signals] == [(signal, "unknown")]
    metrics = (await client.get("/metrics")).text
    assert 'everturn_unknown_values_total{kind="SignalKind"}' in metrics
    assert 'everturn_unknown_values_total{kind="hint"}' in metrics


async def test_an_unknown_state_of_a_conversation_is_shown_as_unknown(
    chat: Any, follow: Any, redis_drivers: RedisDrivers, newer: Database
) -> None:
    conversation = (await chat.send("hello"))["conversation_id"]
    await change(newer, "UPDATE conversation SET state = 'dreaming' WHERE id = $1", conversation)

    async with follow(conversation) as stream:
        await stream.until("stream_snapshot", skip=("ready",))
        await hint(redis_drivers, f"status {conversation} -")
        received = await stream.until("conv_status", skip=(":", "conv_title", "chat_signal"))

    assert received.data.data.state == "unknown"
    assert (await chat.state(conversation))["conversation"]["state"] == "unknown"


async def test_an_entry_that_cannot_be_read_is_a_gap_and_no_end(
    chat: Any, follow: Any, worker: Any, redis_drivers: RedisDrivers
) -> None:
    mine, other = (await chat.send("hello"))["conversation_id"], (await chat.send("other"))["conversation_id"]
    await worker.claim(mine)
    await worker.claim(other)
    client: Any = redis_drivers.event_writer._client  # pyright: ignore[reportPrivateUsage]

    async with follow(mine) as stream, follow(other) as neighbour:
        await stream.until("stream_snapshot", skip=("ready",))
        await neighbour.until("stream_snapshot", skip=("ready",))
        (first,) = await worker.say(mine, "a")
        await stream.until("chat_delta", skip=SKIP)
        fence, n = first.split("-")
        await client.xadd(f"events:{{{mine}}}", {"format": "2", "packed": b"\x00\x01"}, id=f"{fence}-{int(n) + 1}")
        worker.skip(mine)
        await worker.commit(mine)
        (after,) = await worker.say(mine, "b", anywhere=True)
        await worker.say(other, "c")

        await neighbour.until("chat_delta", skip=SKIP)
        await stream.until("stream_gap", skip=(":", "conv_status", "chat_signal", "conv_title"))
        assert (await stream.until("chat_delta", skip=SKIP)).id == after
