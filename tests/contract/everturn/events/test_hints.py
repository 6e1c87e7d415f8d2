"""Hints and inbox notifications reach all listeners, and end with Unavailable when the server is gone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

import pytest

from everturn.core.errors import Unavailable
from everturn.events.stream import Hint
from everturn.redis.calls import build_client
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_testing.core import SequentialIds

Heard = TypeVar("Heard")


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
        await redis_drivers.hints.send(hint)

    assert [listener.result() for listener in listeners] == [hint, hint]


async def test_no_hint_is_missed_once_listening(redis_drivers: RedisDrivers) -> None:
    hint, listening = Hint("status", SequentialIds().conversation()), asyncio.Event()

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(hear_one(redis_drivers.hints.listen(listening.set)))
        await listening.wait()
        await redis_drivers.hints.send(hint)

    assert listener.result() == hint


async def test_a_hint_about_the_state_names_no_signal(redis_drivers: RedisDrivers, redis_url: str) -> None:
    hint = Hint("status", SequentialIds().conversation())

    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(hear_one(redis_drivers.hints.listen(lambda: None)))
        await wait_for_listeners(redis_url, 1)
        await redis_drivers.hints.send(hint)

    assert listener.result() == hint


async def test_an_inbox_notification_names_the_conversation(redis_drivers: RedisDrivers, redis_url: str) -> None:
    conversation_id = SequentialIds().conversation()

    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(hear_one(redis_drivers.inbox_bells.listen()))
        await wait_for_listeners(redis_url, 1)
        await redis_drivers.hints.send(Hint("status", conversation_id))
        await redis_drivers.inbox_bells.ring(conversation_id)

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
        with pytest.raises(Unavailable):
            await redis_drivers.inbox_bells.ring(SequentialIds().conversation())
