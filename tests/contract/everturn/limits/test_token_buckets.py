"""Token buckets in memory and in Redis keep one contract; the script in Redis leaves nothing behind."""

import pytest

from everturn.core.errors import Unavailable
from everturn.limits.redis import RedisTokenBuckets
from everturn.limits.token_buckets import Limit
from everturn.redis.calls import build_client
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_testing.limits.token_buckets import MemoryTokenBuckets
from everturn_testing.limits.token_buckets_contract import TokenBucketsContract


class TestRedisTokenBuckets(TokenBucketsContract):
    @pytest.fixture
    def buckets(self, redis_drivers: RedisDrivers) -> RedisTokenBuckets:
        return redis_drivers.token_buckets


async def test_a_full_bucket_expires_soon(redis_drivers: RedisDrivers, redis_url: str) -> None:
    client = build_client(redis_url, name="other")
    await redis_drivers.token_buckets.draw("a", Limit(60, 60))

    left_ms = await client.pttl("bucket:a")

    assert 0 < left_ms <= 2000
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_a_server_that_lost_the_script_gets_it_again(redis_drivers: RedisDrivers, redis_url: str) -> None:
    client = build_client(redis_url, name="other")
    await redis_drivers.token_buckets.draw("a", Limit(4, 3600))
    await client.script_flush()

    assert (await redis_drivers.token_buckets.draw("a", Limit(4, 3600))).left == 2
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_without_a_server_a_draw_is_unavailable() -> None:
    async with open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        with pytest.raises(Unavailable):
            await redis_drivers.token_buckets.draw("a", Limit(1, 1))


class TestMemoryTokenBuckets(TokenBucketsContract):
    @pytest.fixture
    def buckets(self) -> MemoryTokenBuckets:
        return MemoryTokenBuckets()


async def test_while_down_nothing_is_drawn() -> None:
    buckets = MemoryTokenBuckets()
    buckets.down = True

    with pytest.raises(Unavailable):
        await buckets.draw("a", Limit(1, 1))
