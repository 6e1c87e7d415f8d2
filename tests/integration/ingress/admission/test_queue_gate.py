"""Real ingresses with a full queue, or a Redis that stalls or is full: correct answers in time."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import httpx2
import pytest

from everturn.queue.model import WorkerPresence
from everturn.redis.calls import build_client
from everturn.redis_drivers import open_redis_drivers
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.servers.redis import EmbeddedRedis

NEW = "/conversations/default/default/new/messages"
ROOM = 40
OF_USER, OF_TENANT = ROOM // 8, ROOM // 2
INTERVAL_S = 0.25
WAITS_S = range(5, 11)
"""Of workers whose turns take less than 5 s."""
CLIENTS = 24
TRIES = 5
STALLED_LIMIT_S = 6
"""Three times what a client may be kept waiting while Redis stalls (F6)."""
Refused = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A Redis that may be stopped and filled."""
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"), password="x", durable=False)
    server.start()
    asyncio.run(save_fleet(server.url))
    yield server
    server.stop()


async def save_fleet(url: str) -> None:
    """Runs before the ingress starts, because it caches callers."""
    async with open_redis_drivers(url, name="workers") as redis_drivers:
        await redis_drivers.presences.save(WorkerPresence("w", "", None, 10, 10 * INTERVAL_S), ttl_s=3600)


@pytest.fixture(scope="module")
def gated(start_ingress: Callable[..., Any], own_redis: EmbeddedRedis) -> Any:
    return start_ingress(REDIS_URL=own_redis.url, QUEUE_MAX=str(ROOM))


@pytest.fixture(scope="module")
def second_process(start_ingress: Callable[..., Any], own_redis: EmbeddedRedis) -> Any:
    return start_ingress(REDIS_URL=own_redis.url, QUEUE_MAX=str(ROOM))


@pytest.fixture
async def http(gated: Any) -> AsyncIterator[httpx2.AsyncClient]:
    limits = httpx2.Limits(max_connections=200)
    async with httpx2.AsyncClient(base_url=gated.url, timeout=30, limits=limits) as opened:
        yield opened
    assert gated.alive()


@pytest.fixture
async def rows(database: DatabaseUrls) -> AsyncIterator[asyncpg.Connection]:
    superuser = await asyncpg.connect(database.superuser)
    yield superuser
    await superuser.close()


async def count_turns(rows: asyncpg.Connection) -> int:
    return await rows.fetchval("SELECT count(*) FROM turn")


async def count_queued(rows: asyncpg.Connection) -> int:
    return await rows.fetchval("SELECT count(*) FROM turn WHERE status = 'queued'")


async def test_a_message_is_a_503_in_time_while_redis_stalls(
    http: httpx2.AsyncClient, own_redis: EmbeddedRedis, rows: asyncpg.Connection, refused: Refused
) -> None:
    assert (await http.post(NEW, json={"text": "before"})).status_code == 202
    before = await count_turns(rows)
    assert own_redis.child is not None
    own_redis.child.send(signal.SIGSTOP)

    try:
        async with asyncio.timeout(STALLED_LIMIT_S):
            answers = await asyncio.gather(*(http.post(NEW, json={"text": "stalled"}) for _ in range(10)))
    finally:
        own_redis.child.send(signal.SIGCONT)

    for answer in answers:
        refused(answer, 503)
        assert int(answer.headers["retry-after"]) >= 1
    assert await count_turns(rows) == before
    assert (await http.post(NEW, json={"text": "after"})).status_code == 202


async def test_a_message_is_a_503_while_redis_is_out_of_memory(
    http: httpx2.AsyncClient, own_redis: EmbeddedRedis, rows: asyncpg.Connection, refused: Refused
) -> None:
    client = build_client(own_redis.url, name="test")
    before = await count_turns(rows)
    await client.config_set("maxmemory", "1")

    try:
        answer = await http.post(NEW, json={"text": "full"})
    finally:
        await client.config_set("maxmemory", "0")
        await client.aclose()
        await client.connection_pool.disconnect()

    refused(answer, 503)
    assert "retry-after" in answer.headers
    assert await count_turns(rows) == before
    assert (await http.post(NEW, json={"text": "after"})).status_code == 202


async def empty_queue(rows: asyncpg.Connection) -> None:
    await rows.execute("UPDATE turn SET status = 'cancelled', announced_at = now() WHERE status = 'queued'")
    # An ingress knows the depth for a quarter of a second.
    await asyncio.sleep(0.5)


async def send(http: httpx2.AsyncClient, n: int, url: str = "") -> httpx2.Response:
    """Send the message of one of many users; retry if a busy machine did not count in time."""
    path = f"{url}/conversations/tenant{n % 8}/default/new/messages"
    for _ in range(TRIES):
        answer = await http.post(path, json={"text": "Let me in."}, headers={"X-Dev-User": f"user{n}"})
        if answer.status_code != 503 or "already waiting" in answer.json()["detail"]:
            break
    return answer


async def run_workers(rows: asyncpg.Connection) -> None:
    """Workers that end a turn every quarter of a second, even on a slow machine."""
    loop = asyncio.get_running_loop()
    began, ended = loop.time(), 0
    while True:
        await asyncio.sleep(INTERVAL_S)
        due = int((loop.time() - began) / INTERVAL_S) - ended
        ended += due
        await rows.execute(
            "UPDATE turn SET status = 'cancelled', announced_at = now() WHERE id IN ("
            "SELECT id FROM turn WHERE status = 'queued' ORDER BY created_at LIMIT $1)",
            due,
        )


async def test_ingresses_together_never_exceed_the_queue(
    http: httpx2.AsyncClient, gated: Any, second_process: Any, rows: asyncpg.Connection, refused: Refused
) -> None:
    await empty_queue(rows)

    answers = await asyncio.gather(*(send(http, n, (gated, second_process)[n % 2].url) for n in range(3 * ROOM)))

    full = [answer for answer in answers if answer.status_code != 202]
    assert len(answers) - len(full) == await count_queued(rows) == ROOM
    for answer in full:
        assert "40 turns are already waiting." in refused(answer, 503)["detail"]
    waits_s = {int(answer.headers["retry-after"]) for answer in full}
    assert waits_s <= {*WAITS_S}
    assert len(waits_s) > 1


async def test_a_user_and_a_tenant_leave_room_for_others(
    http: httpx2.AsyncClient, rows: asyncpg.Connection, refused: Refused
) -> None:
    await empty_queue(rows)

    for n in range(OF_TENANT):
        assert (await http.post(NEW, json={"text": "Mine."}, headers={"X-Dev-User": f"u{n // OF_USER}"})).is_success
        if n == OF_USER - 1:
            answer = await http.post(NEW, json={"text": "Mine."}, headers={"X-Dev-User": "u0"})
            assert "5 of your turns" in refused(answer, 429)["detail"]
    answer = await http.post(NEW, json={"text": "Mine."}, headers={"X-Dev-User": "another"})

    assert "20 turns of this tenant" in refused(answer, 429)["detail"]
    assert int(answer.headers["retry-after"]) in WAITS_S
    assert (await send(http, 1)).status_code == 202


@pytest.mark.timeout(180)
async def test_a_client_that_honours_retry_after_is_accepted_in_the_end(
    http: httpx2.AsyncClient, rows: asyncpg.Connection
) -> None:
    await empty_queue(rows)
    await asyncio.gather(*(send(http, n) for n in range(ROOM)))

    async def come(n: int) -> int:
        refusals = 0
        while (answer := await send(http, n)).status_code != 202:
            assert answer.status_code in {429, 503}
            refusals += 1
            await asyncio.sleep(int(answer.headers["retry-after"]))
        return refusals

    workers = asyncio.create_task(run_workers(rows))
    refusals = await asyncio.gather(*(come(ROOM + n) for n in range(CLIENTS)))
    workers.cancel()
    await asyncio.wait({workers})

    assert workers.cancelled()
    assert sum(refusals) >= CLIENTS / 2


async def test_an_accepted_request_can_be_repeated_while_the_queue_is_full(
    http: httpx2.AsyncClient, rows: asyncpg.Connection, refused: Refused
) -> None:
    await empty_queue(rows)
    headers = {"Idempotency-Key": "lost", "X-Dev-User": "retrier"}
    first = await http.post(NEW, json={"text": "Once."}, headers=headers)
    await asyncio.gather(*(send(http, n) for n in range(ROOM)))
    # The gate may count a turn twice at the moment when it is stored, and refuse the last one too early.
    async with asyncio.timeout(STALLED_LIMIT_S):
        while await count_queued(rows) < ROOM:
            await send(http, 0)
    refused(await send(http, 0), 503)

    async def retry() -> httpx2.Response:
        # A refusal waits for what was answered before, but not long: a busy machine may not have found it by then.
        for _ in range(TRIES):
            repeated = await http.post(NEW, json={"text": "Once."}, headers=headers)
            if repeated.status_code != 503:
                break
        return repeated

    repeats = await asyncio.gather(*(retry() for _ in range(10)))

    assert [(repeated.status_code, repeated.json()) for repeated in repeats] == [(202, first.json())] * len(repeats)
    refused(await http.post(NEW, json={"text": "Twice."}, headers=headers), 422)
    refused(await http.post(NEW, json={"text": "Once."}, headers={"X-Dev-User": "retrier"}), 503)
