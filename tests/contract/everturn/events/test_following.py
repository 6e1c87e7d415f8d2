"""A reader in Redis follows many streams with one wait: what wakes it, what ends it, and what it leaves behind."""

import asyncio
import random
from contextlib import aclosing

import pytest

from everturn.core.errors import Unavailable
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.redis import ENTRIES_PER_STREAM, stream_key
from everturn.redis.calls import build_client
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_testing.core import SequentialIds
from everturn_testing.events.events_contract import Follows, entry


async def test_one_follower_hears_hundreds_of_conversations(redis_drivers: RedisDrivers) -> None:
    ids = SequentialIds()
    conversations = [ids.conversation() for _ in range(300)]
    follows = Follows(dict.fromkeys(conversations, ORIGIN))

    async with asyncio.timeout(20), aclosing(redis_drivers.event_reader.follow(follows)) as following:
        for conversation_id in conversations:
            await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 2), after=None)
        heard = [await anext(following) for _ in conversations]

    assert sorted(conversation_id for conversation_id, _ in heard) == sorted(conversations)


async def test_a_conversation_added_before_the_first_wait_is_read(redis_drivers: RedisDrivers) -> None:
    conversation_id = SequentialIds().conversation()
    follows = Follows()
    follows.add(conversation_id, ORIGIN)

    async with asyncio.timeout(10), aclosing(redis_drivers.event_reader.follow(follows)) as following:
        await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 1), after=None)

        assert await anext(following) == (conversation_id, entry(1, 1, 1))


async def test_a_conversation_added_again_is_read_from_its_new_cursor(redis_drivers: RedisDrivers) -> None:
    ids = SequentialIds()
    conversation_id, other = ids.conversation(), ids.conversation()
    await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 1), after=None)
    await redis_drivers.event_writer.publish(conversation_id, entry(1, 2, 2), after=EventCursor(1, 1))
    await redis_drivers.event_writer.publish(other, entry(1, 1, 1), after=None)
    follows = Follows({conversation_id: EventCursor(1, 1)})

    async with asyncio.timeout(10), aclosing(redis_drivers.event_reader.follow(follows)) as following:
        assert await anext(following) == (conversation_id, entry(1, 2, 2))
        del follows.followed[conversation_id]
        follows.add(other, ORIGIN)
        assert await anext(following) == (other, entry(1, 1, 1))
        follows.add(conversation_id, ORIGIN)

        assert await anext(following) == (conversation_id, entry(1, 1, 1, prev=EventCursor(1, 0)))


async def test_more_entries_than_one_read_returns_are_read_before_new_ones(redis_drivers: RedisDrivers) -> None:
    conversation_id = SequentialIds().conversation()
    count = 2 * ENTRIES_PER_STREAM + 5
    for n in range(1, count + 1):
        await redis_drivers.event_writer.publish(conversation_id, entry(1, n, n), after=None)

    follows = Follows({conversation_id: ORIGIN})
    async with asyncio.timeout(20), aclosing(redis_drivers.event_reader.follow(follows)) as following:
        heard = [(await anext(following))[1].events[-1].id.n for _ in range(count)]
        await redis_drivers.event_writer.publish(conversation_id, entry(1, count + 1, count + 1), after=None)
        heard.append((await anext(following))[1].events[-1].id.n)

    assert heard == list(range(1, count + 2))


async def test_nothing_is_missed_or_doubled_while_conversations_come_and_go(redis_drivers: RedisDrivers) -> None:
    """Like a hub: what was yielded moves the cursor, and a conversation that returns continues there."""
    ids, dice = SequentialIds(), random.Random()
    conversations = [ids.conversation() for _ in range(30)]
    follows, cursors = Follows(), dict.fromkeys(conversations, ORIGIN)
    written = dict.fromkeys(conversations, 0)

    async def write() -> None:
        for _ in range(600):
            conversation_id = dice.choice(conversations)
            n = written[conversation_id] = written[conversation_id] + 1
            await redis_drivers.event_writer.publish(conversation_id, entry(1, n, n), after=None)

    async def come_and_go(writing: asyncio.Task[None]) -> None:
        while not writing.done():
            conversation_id = dice.choice(conversations)
            if follows.followed.pop(conversation_id, None) is None:
                follows.add(conversation_id, cursors[conversation_id])
            await asyncio.sleep(0.001)
        for conversation_id in set(conversations) - follows.followed.keys():
            follows.add(conversation_id, cursors[conversation_id])

    async with (
        asyncio.timeout(60),
        aclosing(redis_drivers.event_reader.follow(follows)) as following,
        asyncio.TaskGroup() as group,
    ):
        writing = group.create_task(write())
        group.create_task(come_and_go(writing))
        while not writing.done() or any(at.n < written[each] for each, at in cursors.items()):
            conversation_id, read = await anext(following)
            assert read.events[0].id.n == cursors[conversation_id].n + 1
            cursors[conversation_id] = follows.followed[conversation_id] = read.events[-1].id


async def test_entries_of_a_newer_version_are_skipped_however_many_there_are(
    redis_drivers: RedisDrivers, redis_url: str
) -> None:
    conversation_id = SequentialIds().conversation()
    key, strange = stream_key(conversation_id), ENTRIES_PER_STREAM + 20
    client = build_client(redis_url, name="newer")

    async with (
        asyncio.timeout(20),
        aclosing(redis_drivers.event_reader.follow(Follows({conversation_id: ORIGIN}))) as following,
    ):
        await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 1), after=None)
        first = await anext(following)
        for n in range(2, 2 + strange):
            await client.xadd(key, {"form": "2"}, id=f"1-{n}")
            await client.publish(key, "2\n")
        last = entry(1, 2 + strange, 2 + strange)
        await redis_drivers.event_writer.publish(conversation_id, last, after=last.prev)

        assert [first, await anext(following)] == [(conversation_id, entry(1, 1, 1)), (conversation_id, last)]
    await client.aclose()


async def test_closing_gives_the_connections_back(redis_drivers: RedisDrivers, redis_url: str) -> None:
    conversation_id = SequentialIds().conversation()
    await redis_drivers.event_writer.publish(conversation_id, entry(1, 1, 1), after=None)
    client = build_client(redis_url, name="watch")

    for _ in range(40):  # more than the pool has
        async with (
            asyncio.timeout(10),
            aclosing(redis_drivers.event_reader.follow(Follows({conversation_id: ORIGIN}))) as following,
        ):
            await anext(following)

    assert len(await client.client_list()) < 8
    await client.aclose()
    await client.connection_pool.disconnect()


async def test_without_a_server_following_ends_at_once() -> None:
    async with asyncio.timeout(10), open_redis_drivers("redis://127.0.0.1:1/0", name="test") as redis_drivers:
        with pytest.raises(Unavailable):
            async with aclosing(redis_drivers.event_reader.follow(Follows())) as following:
                await anext(following)
