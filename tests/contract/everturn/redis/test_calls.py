"""A call that fails or takes too long is Unavailable, and the next one works."""

from contextlib import suppress

import pytest

from everturn.errors import Unavailable
from everturn.redis.calls import build_client, limited


async def test_a_call_over_its_limit_is_unavailable_and_the_client_recovers(redis_url: str) -> None:
    client = build_client(redis_url, name="test", pool_size=1)

    with pytest.raises(Unavailable):
        async with limited(0.05):
            await client.blpop("nothing", timeout=5)
    async with limited(5):
        assert await client.ping()

    await client.aclose()
    await client.connection_pool.disconnect()


async def test_a_refused_command_is_unavailable_with_its_reason(redis_url: str) -> None:
    client = build_client(redis_url, name="test")

    with pytest.raises(Unavailable, match="wrong number of arguments"):
        async with limited(5):
            await client.execute_command("GET")

    await client.aclose()
    await client.connection_pool.disconnect()


async def test_a_client_whose_connection_was_cut_connects_anew(redis_url: str) -> None:
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
