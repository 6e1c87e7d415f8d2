"""What event streams may hold in Redis, and what is removed."""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.events.cursor import ORIGIN, EventCursor
from everturn.events.redis import RedisEventWriter
from everturn.events.redis_budget import RedisStreamMemory, StreamBudget, hash_owner
from everturn.events.stream import EncodedEvent, Entry

ANN, AMY = Principal("acme", "p", "ann"), Principal("acme", "p", "amy")
BEN = Principal("rival", "p", "ben")
BUDGET = StreamBudget(stream_bytes=10_000, user_bytes=25_000, tenant_bytes=40_000)


class Publisher:
    """Publishes entries of about 1,000 bytes."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.writer = RedisEventWriter(client, budget=BUDGET)
        self.last: dict[str, EventCursor] = {}

    async def publish(self, name: str, owner: Principal, entries: int = 1, size: int = 950) -> None:
        for _ in range(entries):
            prev = self.last.get(name, ORIGIN)
            cursor = EventCursor(1, prev.n + 1)
            entry = Entry(prev, (EncodedEvent(cursor, "chat.delta", b"x" * size),))
            await self.writer.publish(ConversationId(name), entry, after=prev, owner=owner)
            self.last[name] = cursor

    async def bytes_of(self, *names: str) -> int:
        rows = [row for name in names for row in await self.client.xrange(f"events:{{{name}}}")]
        return sum(len(value) for _, fields in rows for value in fields.values())

    async def booked(self, owner: Principal) -> int:
        return (await RedisStreamMemory(self.client).probe(owner)).of_user


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as opened:
        yield opened


@pytest.fixture
def publisher(client: Redis) -> Publisher:
    return Publisher(client)


async def test_a_stream_is_bounded_and_goes_on_after_its_last_id(publisher: Publisher) -> None:
    await publisher.publish("a", ANN, 35)

    assert 0 < await publisher.bytes_of("a") <= BUDGET.stream_bytes
    assert await publisher.writer.load_last(ConversationId("a")) == publisher.last["a"]


async def test_an_entry_larger_than_a_stream_may_be_is_published(publisher: Publisher) -> None:
    await publisher.publish("a", ANN, size=30_000)
    await publisher.publish("a", ANN)

    assert await publisher.bytes_of("a") < 2_000


async def test_a_users_budget_removes_only_its_own_streams(publisher: Publisher) -> None:
    await publisher.publish("amy", AMY, 5)
    await publisher.publish("ben", BEN, 5)
    names = [f"ann-{n}" for n in range(40)]
    for name in names:
        await publisher.publish(name, ANN, 3)

    assert 0 < await publisher.bytes_of(*names) <= BUDGET.user_bytes
    assert await publisher.bytes_of(names[-1]) > 2_500, "what is written now is kept"
    assert await publisher.bytes_of("amy") > 4_500
    assert await publisher.bytes_of("ben") > 4_500


async def test_a_tenants_budget_removes_streams_of_its_largest_users(publisher: Publisher) -> None:
    for n in range(3):
        await publisher.publish(f"ann-{n}", ANN, 8)
    users = [Principal("acme", "other project", f"user-{n}") for n in range(30)]
    for n, user in enumerate(users):
        await publisher.publish(f"user-{n}", user, 1)

    everybody = [f"ann-{n}" for n in range(3)] + [f"user-{n}" for n in range(30)]
    assert await publisher.bytes_of(*everybody) <= BUDGET.tenant_bytes
    assert await publisher.bytes_of(*everybody[3:]) > 28_000


async def test_only_events_of_ended_turns_are_removed(publisher: Publisher) -> None:
    memory = RedisStreamMemory(publisher.client)
    await publisher.publish("a", ANN, 3)
    ended = publisher.last["a"]
    await publisher.publish("a", ANN, 1)
    await memory.note_ended(ConversationId("a"), ANN, ended)
    await publisher.publish("a", ANN, 1)
    await publisher.publish("b", ANN, 1)
    await memory.note_ended(ConversationId("b"), ANN, publisher.last["b"])

    assert await memory.trim_ended() == 0, "a reader that reconnects at once misses nothing"
    assert await memory.trim_ended(after_s=0) == 2

    kept = [entry.events[0].id.n for entry in await publisher.writer.load_newest(ConversationId("a"), max_entries=9)]
    assert kept == [4, 5]
    assert await publisher.booked(ANN) == await publisher.bytes_of("a") + 2 * len("prevheadbody")
    await memory.note_ended(ConversationId("a"), ANN, publisher.last["a"])
    await memory.trim_ended(after_s=0)
    assert await publisher.booked(ANN) == 0
    assert await publisher.bytes_of("a", "b") == 0
    assert await publisher.writer.load_last(ConversationId("a")) == EventCursor(1, 5)


async def test_streams_that_expired_hold_nothing_against_their_user(publisher: Publisher) -> None:
    for n in range(4):
        await publisher.publish(f"ann-{n}", ANN, 6)
    await publisher.client.delete(*(f"events:{{ann-{n}}}" for n in range(4)))

    await publisher.publish("new", ANN, 9)

    assert await publisher.bytes_of("new") > 8_500
    assert await publisher.booked(ANN) <= BUDGET.user_bytes


async def test_ended_turns_are_trimmed_when_redis_has_no_memory_left(publisher: Publisher) -> None:
    memory = RedisStreamMemory(publisher.client)
    await publisher.publish("a", ANN, 9)
    await memory.note_ended(ConversationId("a"), ANN, publisher.last["a"])
    await publisher.client.config_set("maxmemory", 1_000_000)
    try:
        with pytest.raises(Unavailable):
            await memory.check()
        assert "maxmemory" in (await memory.probe(ANN)).refusal
        # What it books may be refused, depending on the server; what it removes is not.
        with suppress(Unavailable):
            await memory.trim_ended(after_s=0)
        assert await publisher.bytes_of("a") == 0
    finally:
        await publisher.client.config_set("maxmemory", 512 << 20)
    assert not (await memory.probe(ANN)).refusal
    await memory.trim_ended(after_s=0)
    assert await publisher.booked(ANN) == 0


async def test_an_account_that_can_not_be_read_is_no_empty_account(publisher: Publisher) -> None:
    tenant, _ = hash_owner(ANN)
    await publisher.client.set(f"events:bytes:tenant:{tenant}", "not a sorted set")
    try:
        with pytest.raises(Unavailable):
            await RedisStreamMemory(publisher.client).probe(ANN)
    finally:
        await publisher.client.delete(f"events:bytes:tenant:{tenant}")
