"""A call that fails or takes too long is Unavailable, and the next one works."""

import asyncio
import time
from contextlib import suppress

import pytest

from everturn.core.errors import Invalid, Unavailable
from everturn.limits.token_buckets import Limit
from everturn.redis.calls import CALL_LIMIT_S, build_client, limited
from everturn.redis_drivers import RedisDrivers


async def test_a_call_over_its_limit_is_unavailable_and_the_client_recovers(redis_url: str) -> None:
    client = build_client(redis_url, name="test", pool_size=1)

    with pytest.raises(Unavailable):
        async with limited(0.05):
            await client.blpop("nothing", timeout=5)
    async with limited(5):
        assert await client.ping()

    await client.aclose()
    await client.connection_pool.disconnect()


@pytest.mark.parametrize("url", ["http://x", "redis://h:a", "redis://:pass/word@h", "redis://h?socket_timeout=soon"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Invalid, match="REDIS_URL must be") as refused:
        build_client(url, name="test")
    assert url not in str(refused.value)
    assert "pass" not in str(refused.value).replace(":password@", "")


async def test_a_refused_command_is_unavailable_with_its_reason(redis_url: str) -> None:
    client = build_client(redis_url, name="test")

    with pytest.raises(Unavailable, match="wrong number of arguments"):
        async with limited(5):
            await client.execute_command("GET")

    await client.aclose()
    await client.connection_pool.disconnect()


async def test_a_client_reconnects_after_a_lost_connection(redis_url: str) -> None:
    client, killer = build_client(redis_url, name="victim", pool_size=1), build_client(redis_url, name="killer")
    await client.ping()
    (victim,) = [one for one in await killer.client_list() if one["name"] == "victim"]

    await killer.client_kill(victim["addr"])
    with suppress(Unavailable):  # whether the end of the connection has been noticed by now is a matter of luck
        async with limited(5):
            await client.ping()

    async with limited(5):
        assert await client.ping()
    for one in (client, killer):
        await one.aclose()
        await one.connection_pool.disconnect()


async def test_a_connection_to_a_server_that_became_a_replica_is_closed(redis_url: str) -> None:
    client, operator = build_client(redis_url, name="test", pool_size=1), build_client(redis_url, name="operator")
    before = await client.client_id()

    await operator.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(Unavailable, match="is a replica now"):
            async with limited(5), client.pipeline(transaction=False) as pipeline:
                pipeline.set("a", "1")
                await pipeline.execute(raise_on_error=False)
    finally:
        await operator.execute_command("REPLICAOF", "NO", "ONE")

    assert await client.client_id() != before
    for one in (client, operator):
        await one.aclose()
        await one.connection_pool.disconnect()


async def test_an_answer_that_came_while_the_process_was_held_up_is_no_silence(redis_drivers: RedisDrivers) -> None:
    await redis_drivers.token_buckets.draw("a", Limit(4, 3600))
    held_up = [
        lambda: redis_drivers.token_buckets.draw("a", Limit(4, 3600)),
        redis_drivers.presences.load_all,
        lambda: redis_drivers.doorbells.check(limit_s=CALL_LIMIT_S),
    ]

    for call in held_up:
        # The next turn of the loop begins when the command has been sent.
        asyncio.get_running_loop().call_soon(time.sleep, 2 * CALL_LIMIT_S)
        await call()


async def test_silence_counts_even_for_a_blocked_process(redis_url: str) -> None:
    client = build_client(redis_url, name="test", pool_size=1)
    await client.ping()

    asyncio.get_running_loop().call_soon(time.sleep, 2 * CALL_LIMIT_S)
    with pytest.raises(Unavailable):
        async with limited(CALL_LIMIT_S):
            await client.blpop("nothing", timeout=60)

    await client.aclose()
    await client.connection_pool.disconnect()
