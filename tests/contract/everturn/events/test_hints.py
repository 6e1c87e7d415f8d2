"""Notifications reach all listeners in one call, and listening ends with Unavailable when the server is gone."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import pytest

from everturn.core.errors import Unavailable
from everturn.core.identity import Lane
from everturn.events.stream import Hint
from everturn.redis.calls import build_client
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_testing.core import SequentialIds

Heard = TypeVar("Heard")


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[Any]:
    client = build_client(redis_url, name="watch")
    yield client
    await client.aclose()
    await client.connection_pool.disconnect()


async def hear_one(listening: AsyncGenerator[Heard]) -> Heard:
    async with asyncio.timeout(10), aclosing(listening) as messages:
        return await anext(messages)


async def wait_for_listeners(redis_url: str, count: int) -> None:
    """The handshake, because pub/sub drops messages without a listener."""
    client = build_client(redis_url, name="watch")
    async with asyncio.timeout(10):
        while sum(int(one["psub"]) for one in await client.client_list()) < count:
            pass
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_every_listener_hears_a_hint(redis_drivers: RedisDrivers, redis_url: str) -> None:
    conversation_id = SequentialIds().conversation()
    hint = Hint("signal", conversation_id, SequentialIds().signal())

    async with asyncio.TaskGroup() as tasks:
        listeners = [tasks.create_task(hear_one(redis_drivers.hints.listen(lambda: None))) for _ in range(2)]
        await wait_for_listeners(redis_url, 2)
        await redis_drivers.notifications.send(hint)

    assert [listener.result() for listener in listeners] == [hint, hint]


async def test_no_hint_is_missed_once_listening(redis_drivers: RedisDrivers) -> None:
    hint, listening = Hint("status", SequentialIds().conversation()), asyncio.Event()

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(hear_one(redis_drivers.hints.listen(listening.set)))
        await listening.wait()
        await redis_drivers.notifications.send(hint)

    assert listener.result() == hint


async def test_a_hint_about_the_state_names_no_signal(redis_drivers: RedisDrivers, redis_url: str) -> None:
    hint = Hint("status", SequentialIds().conversation())

    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(hear_one(redis_drivers.hints.listen(lambda: None)))
        await wait_for_listeners(redis_url, 1)
        await redis_drivers.notifications.send(hint)

    assert listener.result() == hint


async def test_a_hint_about_a_signal_notifies_the_inbox(redis_drivers: RedisDrivers, redis_url: str) -> None:
    ids = SequentialIds()
    other_id, conversation_id = ids.conversation(), ids.conversation()

    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(hear_one(redis_drivers.inbox_bells.listen()))
        await wait_for_listeners(redis_url, 1)
        await redis_drivers.notifications.send(Hint("status", other_id))
        await redis_drivers.notifications.send(Hint("signal", conversation_id, ids.signal()))

    assert listener.result() == conversation_id


async def test_a_lost_connection_ends_the_listening(redis_drivers: RedisDrivers, redis_url: str) -> None:
    client = build_client(redis_url, name="watch")

    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(_fails_listening(redis_drivers))
        await wait_for_listeners(redis_url, 1)
        (subscriber,) = [one for one in await client.client_list() if int(one["psub"])]
        await client.client_kill(subscriber["addr"])

    assert listener.result()
    await client.aclose()
    await client.connection_pool.disconnect()


async def _fails_listening(redis_drivers: RedisDrivers) -> bool:
    with pytest.raises(Unavailable):
        await hear_one(redis_drivers.hints.listen(lambda: None))
    return True


async def test_without_a_server_there_is_nothing_to_hear() -> None:
    async with open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        with pytest.raises(Unavailable):
            await hear_one(redis_drivers.hints.listen(lambda: None))


async def test_all_notifications_of_a_change_are_one_call(redis_drivers: RedisDrivers, redis_client: Any) -> None:
    conversation_id = SequentialIds().conversation()
    await redis_drivers.notifications.send(Hint("status", conversation_id))
    before = (await redis_client.info("stats"))["total_reads_processed"]

    hint = Hint("signal", conversation_id, SequentialIds().signal())
    assert await redis_drivers.notifications.send(hint, ring_lane=Lane.PAID) == {}

    # The read of INFO itself is the second.
    assert (await redis_client.info("stats"))["total_reads_processed"] - before == 2
    assert await redis_drivers.doorbells.next_ring([Lane.PAID], timeout_s=10) == conversation_id


async def test_one_notification_that_fails_does_not_stop_the_others(
    redis_drivers: RedisDrivers, redis_client: Any
) -> None:
    hint, listening = Hint("status", SequentialIds().conversation()), asyncio.Event()
    await redis_client.set("turns:paid", "not a list")

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(hear_one(redis_drivers.hints.listen(listening.set)))
        await listening.wait()
        failed = await redis_drivers.notifications.send(hint, ring_lane=Lane.PAID)

    assert list(failed) == ["doorbell"]
    assert "WRONGTYPE" in failed["doorbell"]
    assert listener.result() == hint


async def test_without_a_server_no_notification_is_sent() -> None:
    async with open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        failed = await redis_drivers.notifications.send(
            Hint("status", SequentialIds().conversation()), ring_lane=Lane.PAID
        )

    assert list(failed) == ["doorbell", "hint"]
