"""Each service works as the user it has on the Redis server, and can do nothing else there."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from everturn.core.identity import Lane
from everturn.core.ids import ConversationId
from everturn.events.stream import Hint
from everturn.limits.redis import RedisTokenBuckets
from everturn.queue.model import WorkerPresence
from everturn.redis.calls import build_client
from everturn.redis.users import INGRESS, RULES, WORKER, derive_password
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn_local.home import Secrets
from everturn_local.servers.redis import EmbeddedRedis
from everturn_testing.events.events_contract import Events, EventsContract
from everturn_testing.limits.token_buckets_contract import TokenBucketsContract

CONVERSATION = ConversationId("conv_1")
LIMIT_S = 20


@pytest.fixture
async def ingress(redis_server: EmbeddedRedis, redis_url: str) -> AsyncIterator[RedisDrivers]:
    async with open_redis_drivers(redis_server.service_url(INGRESS), name="ingress") as opened:
        yield opened


@pytest.fixture
async def worker(redis_server: EmbeddedRedis, redis_url: str) -> AsyncIterator[RedisDrivers]:
    async with open_redis_drivers(redis_server.service_url(WORKER), name="worker") as opened:
        yield opened


class TestEvents(EventsContract):
    """A worker writes them, an ingress reads and erases them."""

    @pytest.fixture
    def events(self, ingress: RedisDrivers, worker: RedisDrivers) -> Events:
        return Events(worker.event_writer, ingress.event_reader, ingress.event_writer)


class TestTokenBuckets(TokenBucketsContract):
    """Of an ingress."""

    @pytest.fixture
    def buckets(self, ingress: RedisDrivers) -> RedisTokenBuckets:
        return ingress.token_buckets


async def test_an_ingress_rings_and_a_worker_answers(ingress: RedisDrivers, worker: RedisDrivers) -> None:
    await ingress.doorbells.check(limit_s=LIMIT_S, writing=True)
    await ingress.notifications.send(Hint("status", CONVERSATION), ring_lane=Lane.REGISTERED)
    await worker.doorbells.ring(Lane.PAID, CONVERSATION)

    heard = [await worker.doorbells.next_ring([lane], timeout_s=LIMIT_S) for lane in (Lane.REGISTERED, Lane.PAID)]

    assert heard == [CONVERSATION, CONVERSATION]


async def test_an_ingress_knows_the_workers(ingress: RedisDrivers, worker: RedisDrivers) -> None:
    presence = WorkerPresence("a", "", None, 1)

    await worker.presences.save(presence, ttl_s=600)

    assert await ingress.presences.load_all() == (presence,)


async def test_an_ingress_notifies_ingresses_and_workers(ingress: RedisDrivers, worker: RedisDrivers) -> None:
    hint, listening = Hint("signal", CONVERSATION, "sig_1"), asyncio.Event()

    async with (
        asyncio.timeout(LIMIT_S),
        aclosing(ingress.hints.listen(listening.set)) as hints,
        aclosing(worker.inbox_bells.listen()) as bells,
    ):
        hinted, notified = asyncio.create_task(anext(hints)), asyncio.create_task(anext(bells))
        await listening.wait()
        while not notified.done():
            assert await ingress.notifications.send(hint) == {}
            await asyncio.wait([notified], timeout=0.05)
        assert (await hinted, notified.result()) == (hint, CONVERSATION)


NOBODYS = """
FLUSHALL
FLUSHDB
CONFIG GET *
CONFIG SET maxmemory 1
KEYS *
SCAN 0
RANDOMKEY
DBSIZE
SHUTDOWN
DEBUG SLEEP 0
MONITOR
CLIENT LIST
CLIENT KILL TYPE normal
ACL LIST
ACL SETUSER default nopass
SAVE
REPLICAOF NO ONE
SWAPDB 0 1
MIGRATE h 1 k 0 1
SCRIPT FLUSH
FUNCTION FLUSH
PUBSUB CHANNELS
GET secret
SET secret 1
DEL secret
PUBLISH other 1
PSUBSCRIBE *
SUBSCRIBE other
EVAL "return redis.call('GET','secret')" 0
EVAL "return redis.call('CONFIG','GET','*')" 0
""".strip().splitlines()
FOREIGN = {
    INGRESS: """
LPOP turns:registered
LRANGE turns:registered 0 -1
SET worker:a 1
ZADD workers 1 a
DEL workers
""".strip().splitlines(),
    WORKER: """
HGETALL bucket:a
DEL bucket:a
""".strip().splitlines(),
}


@pytest.mark.parametrize(
    ("user", "command"),
    [(user, command) for user in (INGRESS, WORKER) for command in (*NOBODYS, *FOREIGN[user])],
)
async def test_requests_beyond_its_rights_are_refused(
    redis_server: EmbeddedRedis, redis_url: str, user: str, command: str
) -> None:
    name, *arguments = shlex.split(command)
    client: Any = build_client(redis_server.service_url(user), name="test", pool_size=1)
    try:
        with pytest.raises(ResponseError, match=r"permission|not allowed|NOPERM"):
            await client.execute_command(name, *arguments)
    finally:
        await client.aclose()
        await client.connection_pool.disconnect()


async def test_no_password_of_one_opens_another_user(redis_server: EmbeddedRedis, passwords: Secrets) -> None:
    words = {user: derive_password(passwords.redis, user) for user in (INGRESS, WORKER)}
    place = f"127.0.0.1:{redis_server.port}/0"
    logins = [f":{word}" for word in words.values()]
    logins += [f"{INGRESS}:{words[WORKER]}", f"{WORKER}:{words[INGRESS]}", f"{WORKER}:{passwords.redis}"]
    for login in logins:
        client: Any = build_client(f"redis://{login}@{place}", name="test", pool_size=1)
        with pytest.raises((AuthenticationError, NoPermissionError)):
            await client.ping()
        await client.aclose()
        await client.connection_pool.disconnect()


def test_the_rules_for_servers_of_others_are_documented(repository: Path) -> None:
    page = (repository / "docs/operate.md").read_text()

    for user, rules in RULES.items():
        assert f"ACL SETUSER {user} reset on '>PASSWORD' {rules}" in page
