"""Calls to a Redis-protocol server: each has a time limit, and every failure of Redis raises Unavailable."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ReadOnlyError, RedisError

from everturn.core.cancellation import answered_within, keep_cancellation
from everturn.core.errors import Invalid, Unavailable

CALL_LIMIT_S = 0.25
"""For calls that a request waits for."""
RING_LIMIT_S = 1.0
"""A doorbell is rung after the commit, when the answer is certain, so a busy machine gets more time."""
PUBLISH_LIMIT_S = 2.0
"""For background work of a worker. If a busy machine could not meet the limit, it would reconnect for every call and
none would succeed; and in that state the system depends on the sweeper."""
GRACE_S = 2.0
"""How much longer than requested a waiting call can last before the server counts as unreachable."""
QUIET_S = 5.0
"""After this time without a message, a subscribed connection's server is pinged."""
POOL_SIZE = 32


class _ToPrimary:
    """Closes the connection when its server rejects a write, because it has become a replica: the next connection to
    the same address leads to the new primary."""

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        connection = cast(Any, super())
        try:
            return await connection.read_response(*args, **kwargs)
        except ReadOnlyError as error:
            await connection.disconnect()
            raise ConnectionLost(f"The server is a replica now: {error}") from error


class _PlainToPrimary(_ToPrimary, Connection):
    pass


class _TlsToPrimary(_ToPrimary, SSLConnection):
    pass


def build_client(url: str, *, name: str, pool_size: int = POOL_SIZE) -> Redis:
    """A client without retries and without its own read timeout: `limited` sets a limit for each call, which includes
    the wait for a connection. Raises Invalid for an invalid address or option."""
    try:
        pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType] its options have no types
            url,
            max_connections=pool_size,
            timeout=GRACE_S,
            socket_timeout=None,
            socket_connect_timeout=PUBLISH_LIMIT_S,
            retry=Retry(NoBackoff(), 0),
            client_name=name,
            protocol=2,
        )
    except ValueError as error:
        # The library's message can contain a part of the password.
        raise Invalid("REDIS_URL must be redis://:password@host:port/0.") from error
    kinds: dict[Any, Any] = {Connection: _PlainToPrimary, SSLConnection: _TlsToPrimary}
    pool.connection_class = kinds.get(pool.connection_class, pool.connection_class)
    return Redis.from_pool(pool)


@asynccontextmanager
async def limited(limit_s: float) -> AsyncGenerator[None]:
    """Around one call: Unavailable when it fails or the server is silent for longer. Delays of this process itself are
    not counted. An interrupted call closes its connection."""
    try:
        with keep_cancellation():
            async with answered_within(limit_s):
                yield
    # uvloop raises RuntimeError for a write to a connection that has just closed.
    except (RedisError, OSError, TimeoutError, RuntimeError) as error:
        raise Unavailable(f"Redis: {error or type(error).__name__}") from error


async def next_message(pubsub: Any) -> dict[str, Any]:
    """The next message of a subscribed connection. Raises Unavailable when the server does not answer a ping."""
    async with limited(QUIET_S + GRACE_S):
        message = await pubsub.get_message(timeout=QUIET_S)
        if message is not None:
            return message
        await pubsub.ping()
        answer = await pubsub.get_message(timeout=GRACE_S)
    if answer is None:
        raise Unavailable("Redis does not answer.")
    return answer


async def try_next_message(pubsub: Any) -> dict[str, Any] | None:
    """The next message that has arrived already."""
    async with limited(GRACE_S):
        return await pubsub.get_message(timeout=0)
