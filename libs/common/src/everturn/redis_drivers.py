"""Opens everything that uses a Redis-protocol server: one client, whose connection pool its drivers share."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from everturn.bundles.redis_operations import RedisOperationQueue
from everturn.events.redis import RedisEventReader, RedisEventWriter, RedisHints, RedisInboxBells, RedisNotifications
from everturn.events.redis_budget import RedisStreamMemory
from everturn.limits.redis import RedisTokenBuckets
from everturn.queue.redis import RedisDoorbells, RedisPresences
from everturn.redis.calls import build_client

OPERATIONS_POOL_SIZE = 48
"""Connections for operations of bundles, each of which has one while it waits: more than a process has operations."""


@dataclass(frozen=True, slots=True)
class RedisDrivers:
    """Everything that uses Redis: losing its data costs only time."""

    doorbells: RedisDoorbells
    event_writer: RedisEventWriter
    event_reader: RedisEventReader
    notifications: RedisNotifications
    hints: RedisHints
    inbox_bells: RedisInboxBells
    presences: RedisPresences
    token_buckets: RedisTokenBuckets
    memory: RedisStreamMemory
    operations: RedisOperationQueue


@asynccontextmanager
async def open_redis_drivers(url: str, *, name: str) -> AsyncGenerator[RedisDrivers]:
    """Drivers that connect on first use; `url` is `redis://:password@host:port/0`, `name` that of the process."""
    client = build_client(url, name=name)
    waiting = build_client(url, name=name, pool_size=OPERATIONS_POOL_SIZE)
    try:
        yield RedisDrivers(
            doorbells=RedisDoorbells(client),
            event_writer=RedisEventWriter(client),
            event_reader=RedisEventReader(client),
            notifications=RedisNotifications(client),
            hints=RedisHints(client),
            inbox_bells=RedisInboxBells(client),
            presences=RedisPresences(client),
            token_buckets=RedisTokenBuckets(client),
            memory=RedisStreamMemory(client),
            operations=RedisOperationQueue(waiting),
        )
    finally:
        for each in (client, waiting):
            await each.aclose()
            await each.connection_pool.disconnect()
