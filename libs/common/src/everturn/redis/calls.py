"""Calls to a Redis-protocol server: every one has a time limit, and every failure of the wire is Unavailable."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from everturn.core.cancellation import answered_within, keep_cancellation
from everturn.core.errors import Invalid, Unavailable

CALL_LIMIT_S = 0.25
"""Accepting a message may wait no longer before it says 503."""
RING_LIMIT_S = 1.0
"""A bell is rung after the commit, when the answer is certain: a busy machine gets time for it."""
PUBLISH_LIMIT_S = 2.0
"""For what a worker does in the background. With a limit that a busy machine can't keep, connecting anew each time,
nothing would come through any more, and the sweeper is what everybody relies on then."""
GRACE_S = 2.0
"""How much longer than asked a waiting call may take before the server counts as gone."""
POOL_SIZE = 32


def build_client(url: str, *, name: str, pool_size: int = POOL_SIZE) -> Redis:
    """A client without retries and without a read limit of its own: `limited` sets one for each call, in which the wait
    for one of its connections is counted too. Raises Invalid for an address or an option of it that can't be read."""
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
        # What the library says may hold a part of the password.
        raise Invalid("REDIS_URL must be redis://:password@host:port/0.") from error
    return Redis.from_pool(pool)


@asynccontextmanager
async def limited(limit_s: float) -> AsyncGenerator[None]:
    """Around one call: Unavailable when it fails or the server is silent for longer; what this process itself needs is
    not counted. A call cut short closes its connection."""
    try:
        with keep_cancellation():
            async with answered_within(limit_s):
                yield
    except (RedisError, OSError, TimeoutError) as error:
        raise Unavailable(f"Redis: {error or type(error).__name__}") from error
