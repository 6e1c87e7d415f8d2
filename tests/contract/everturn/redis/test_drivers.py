"""Opening the drivers needs no server; closing it leaves no connection."""

import asyncio
import signal
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from everturn.core.errors import Unavailable
from everturn.redis.calls import build_client
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_local.servers.redis import EmbeddedRedis
from everturn_testing.core import SequentialIds
from everturn_testing.events.events_contract import Follows, entry


async def test_closing_leaves_no_connection(redis_url: str) -> None:
    watcher = build_client(redis_url, name="watch")

    async with open_redis_drivers(redis_url, name="short-lived") as redis_drivers:
        await redis_drivers.doorbells.check(limit_s=2)
        assert "short-lived" in [one["name"] for one in await watcher.client_list()]

    async with asyncio.timeout(10):
        while "short-lived" in [one["name"] for one in await watcher.client_list()]:  # noqa: ASYNC110 - it reports no event
            await asyncio.sleep(0.01)
    await watcher.aclose()
    await watcher.connection_pool.disconnect()


async def test_opening_needs_no_server() -> None:
    async with open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        assert redis_drivers.doorbells is not None


async def test_a_stalled_server_is_unavailable_until_it_continues(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis", password="x", durable=False)
    server.start()
    try:
        async with open_redis_drivers(server.url, name="test") as redis_drivers:
            await redis_drivers.doorbells.check(limit_s=2)
            server.kill(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(Unavailable):
                await redis_drivers.doorbells.check(limit_s=2)
            assert time.monotonic() - began < 2 * 3

            server.kill(signal.SIGCONT)

            await redis_drivers.doorbells.check(limit_s=2)
    finally:
        server.stop()


async def test_a_server_that_was_killed_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis", password="x", durable=False)
    server.start()
    conversation_id = SequentialIds().conversation()
    try:
        async with open_redis_drivers(server.url, name="test") as redis_drivers:
            await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 1), after=None)
            following = asyncio.create_task(_fails_following(redis_drivers))
            server.kill()
            server.stop()
            assert await following

            server.start()

            await redis_drivers.event_writer.publish(conversation_id, entry(1, 2, 2), after=None)
    finally:
        server.stop()


async def _fails_following(redis_drivers: RedisDrivers) -> bool:
    with pytest.raises(Unavailable):
        async with asyncio.timeout(20), aclosing(redis_drivers.event_reader.follow(Follows())) as following:
            await anext(following)
    return True
