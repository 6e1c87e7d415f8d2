"""Event streams in memory and in Redis keep one contract; what only Redis does is tested here too."""

import pytest

from everturn.core.errors import Unavailable
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.redis import KEEP_S, MAX_ENTRIES, load_last_id, stream_key
from everturn.events.stream import EventsLost
from everturn.redis.calls import build_client
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_testing.core import SequentialIds
from everturn_testing.events.events import MemoryEvents
from everturn_testing.events.events_contract import Events, EventsContract, entry


class TestRedisEvents(EventsContract):
    @pytest.fixture
    def events(self, redis_drivers: RedisDrivers) -> Events:
        return Events(redis_drivers.event_writer, redis_drivers.event_reader, redis_drivers.event_writer)


async def test_a_stream_expires_an_hour_after_its_last_entry(redis_drivers: RedisDrivers, redis_url: str) -> None:
    conversation_id = SequentialIds().conversation()
    client = build_client(redis_url, name="test")

    await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 1), after=None)

    assert KEEP_S - 5 <= await client.ttl(stream_key(conversation_id)) <= KEEP_S
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_a_stream_keeps_about_the_last_two_thousand_entries(redis_drivers: RedisDrivers) -> None:
    conversation_id = SequentialIds().conversation()
    for n in range(1, MAX_ENTRIES + 301):
        await redis_drivers.event_writer.publish(
            conversation_id, entry(1, n, n), after=EventCursor(1, n - 1) if n > 1 else None
        )

    kept = await redis_drivers.event_reader.load_after(conversation_id, ORIGIN, max_entries=10_000)

    assert MAX_ENTRIES <= len(kept) <= MAX_ENTRIES + 200
    assert kept[-1].events[-1].id == EventCursor(1, MAX_ENTRIES + 300)


async def test_after_a_loss_only_a_first_entry_is_accepted(redis_drivers: RedisDrivers, redis_url: str) -> None:
    conversation_id = SequentialIds().conversation()
    await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 1), after=None)
    client = build_client(redis_url, name="test")
    await client.flushall()

    with pytest.raises(EventsLost):
        await redis_drivers.event_writer.publish(conversation_id, entry(1, 2, 2), after=EventCursor(1, 1))
    await redis_drivers.event_writer.publish(conversation_id, entry(1, 3, 3), after=None)

    assert await redis_drivers.event_writer.load_last(conversation_id) == EventCursor(1, 3)
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_fences_beyond_the_precision_of_a_double_still_grow(redis_drivers: RedisDrivers) -> None:
    conversation_id = SequentialIds().conversation()
    await redis_drivers.event_writer.publish(conversation_id, entry(2**53, 1, 1), after=None)

    await redis_drivers.event_writer.publish(conversation_id, entry(2**53 + 2, 1, 1), after=None)

    assert await redis_drivers.event_writer.load_last(conversation_id) == EventCursor(2**53 + 2, 1)


async def test_without_a_server_nothing_is_published() -> None:
    async with open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        with pytest.raises(Unavailable):
            await redis_drivers.event_writer.publish(SequentialIds().conversation(), entry(1, 1, 1), after=None)


async def test_the_last_id_outlives_the_entries(redis_drivers: RedisDrivers, redis_url: str) -> None:
    conversation_id = SequentialIds().conversation()
    client = build_client(redis_url, name="test")
    assert await load_last_id(client, conversation_id) is None
    await redis_drivers.event_writer.publish(conversation_id, entry(4, 1, 2), after=None)

    await client.xtrim(stream_key(conversation_id), maxlen=0, approximate=False)

    assert await load_last_id(client, conversation_id) == EventCursor(4, 2)
    await client.aclose()
    await client.connection_pool.disconnect()


class TestMemoryEvents(EventsContract):
    @pytest.fixture
    def events(self) -> Events:
        both = MemoryEvents()
        return Events(both, both, both)


async def test_after_a_loss_in_memory_only_a_first_entry_is_accepted() -> None:
    events, conversation_id = MemoryEvents(), SequentialIds().conversation()
    await events.publish(conversation_id, entry(1, 1, 1), after=None)

    events.lose_all()

    with pytest.raises(EventsLost):
        await events.publish(conversation_id, entry(1, 2, 2), after=entry(1, 1, 1).events[-1].id)


async def test_while_down_nothing_is_published() -> None:
    events = MemoryEvents()
    events.down = True

    with pytest.raises(Unavailable):
        await events.publish(SequentialIds().conversation(), entry(1, 1, 1), after=None)
