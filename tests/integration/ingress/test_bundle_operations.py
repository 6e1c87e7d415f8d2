"""Operations of bundles over HTTP, with a worker that the test plays: who may call what, and how a call ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import jwt
import pytest

from everturn.bundles.operations import OperationReply, OperationRequest
from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import BundleListing, OperationListing, StoredBundle
from everturn.core.identity import Principal, Role
from everturn.postgres.pool import open_database
from everturn.redis_drivers import RedisDrivers
from everturn_local.servers.databases import DatabaseUrls
from ingress.bundle_operations import OPEN_OF_PERSON
from ingress.bundles import KEEP_S

SECRET = "a secret that is long enough for HS256"
BASE = "/bundles/acme/one/desk/operations"
SCHEMA = {"type": "object", "properties": {"limit": {"type": "integer"}}}
OPERATIONS = (
    OperationListing("list", "Lists.", SCHEMA, effect="pure", timeout_s=0.3),
    OperationListing("close", "Closes.", {"type": "object"}, roles=("admin",)),
    OperationListing("again", "Can be repeated.", {"type": "object"}, effect="idempotent", timeout_s=0.3),
    OperationListing("pay", "Pays.", {"type": "object"}, timeout_s=0.3),
)
DESK = BundleListing("desk", "a" * 64, "Desk", is_default=True, operations=OPERATIONS)
GOLD = BundleListing("gold", "a" * 64, "Gold", roles=("paid",), operations=OPERATIONS)
Answer = Callable[[OperationRequest], Awaitable[OperationReply | None]]


def bearer(*roles: str, user: str = "ann") -> dict[str, str]:
    claims = {"iss": "i", "aud": "a", "sub": user, "tenant": "acme", "project": "one", "roles": roles}
    return {"Authorization": f"Bearer {jwt.encode(claims | {'exp': int(time.time()) + 600}, SECRET, 'HS256')}"}


@pytest.fixture(scope="module")
def ingress(start_ingress: Any) -> Any:
    return start_ingress(AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET)


@pytest.fixture(scope="module")
def published(database: DatabaseUrls) -> None:
    async def publish() -> None:
        async with open_database(database.worker, pool_size=1, application_name="test-worker") as opened:
            registry = PostgresBundles(opened)
            for listing in (DESK, GOLD):
                await registry.store(StoredBundle(listing.id, listing.digest, "{}", b""))
            await registry.publish((DESK, GOLD))

    asyncio.run(publish())
    time.sleep(1.2 * KEEP_S)


@pytest.fixture
def work(redis_drivers: RedisDrivers, published: None) -> Callable[..., Any]:
    """A worker that answers requests so; it yields those that it took."""
    queue = redis_drivers.operations

    @asynccontextmanager
    async def play(answer: Answer) -> AsyncIterator[list[OperationRequest]]:
        taken: list[OperationRequest] = []

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    if (request := await queue.take(["desk", "gold"], timeout_s=1)) is not None:
                        taken.append(request)
                        tasks.create_task(serve(request))

        async def serve(request: OperationRequest) -> None:
            if (reply := await answer(request)) is not None:
                await queue.reply(request.request_id, reply)

        running = asyncio.create_task(run())
        try:
            yield taken
        finally:
            running.cancel()
            await asyncio.wait({running})

    return play


def replying(reply: OperationReply | None) -> Answer:
    async def answer(_: OperationRequest) -> OperationReply | None:
        return reply

    return answer


async def test_a_worker_gets_the_arguments_and_the_caller(client: httpx2.AsyncClient, work: Any) -> None:
    body = '{"limit": 5, "text": "ü \\n"}'
    async with work(replying(OperationReply("ok", b'{"tickets": ["T-1"]}'))) as taken:
        json_type = {"Content-Type": "application/json"}
        for bundle in ("desk", "default"):
            path = f"/bundles/acme/one/{bundle}/operations/list"
            answer = await client.post(path, content=body, headers=bearer("paid", "registered") | json_type)
            assert (answer.status_code, answer.json()) == (200, {"result": {"tickets": ["T-1"]}})

    first, second = taken
    assert first.arguments.decode() == body
    assert (first.bundle_id, first.name, first.timeout_s, second.bundle_id) == ("desk", "list", 0.3, "desk")
    assert first.principal == Principal("acme", "one", "ann", frozenset({Role.PAID, Role.REGISTERED}))
    assert first.request_id != second.request_id


async def test_a_person_sees_the_operations_that_are_open_to_them(client: httpx2.AsyncClient, published: None) -> None:
    async def load(*roles: str) -> list[str]:
        listed = (await client.get(BASE, headers=bearer(*roles))).json()["operations"]
        return [each["name"] for each in listed]

    assert await load("registered") == ["again", "list", "pay"]
    assert await load("admin") == ["again", "close", "list", "pay"]
    assert (await client.get(BASE, headers=bearer())).json()["operations"][1] == {
        "name": "list", "summary": "Lists.", "parameters": SCHEMA, "effect": "pure", "timeout_s": 0.3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "detail"),
    [
        ("typo/operations/list", "{}", 404, "unknown-bundle", "GET /bundles lists the bundles that you can use."),
        ("gold/operations/list", "{}", 404, "unknown-bundle", "GET /bundles lists the bundles that you can use."),
        (
            "desk/operations/typo",
            "{}",
            404,
            "unknown-operation",
            "The bundle has no operation 'typo'. It has list, again, pay.",
        ),
        ("desk/operations/close", "{}", 403, "forbidden", "Your roles don't allow this operation."),
        ("desk/operations/list", "[1]", 422, "unprocessable", "body: Input should be a valid dictionary"),
        ("desk/operations/list", "{", 400, "malformed", None),
        ("desk/operations/list", '{"a": 1, "a": 2}', 400, "malformed", None),
        ("desk/operations/list", f'{{"a": "{"x" * 262_144}"}}', 413, "too-large", None),
    ],
)
async def test_a_request_that_reaches_no_worker(
    client: httpx2.AsyncClient, work: Any, refused: Any, path: str, body: str, status: int, kind: str, detail: str
) -> None:
    async with work(replying(OperationReply("ok"))) as taken:
        headers = bearer() | {"Content-Type": "application/json"}
        answer = await client.post(f"/bundles/acme/one/{path}", content=body, headers=headers)

    problem = refused(answer, status)
    assert problem["type"] == f"urn:everturn:problem:{kind}"
    assert detail in (None, problem["detail"])
    assert taken == []


async def test_an_idempotency_key_is_refused_and_not_ignored(client: httpx2.AsyncClient, work: Any) -> None:
    async with work(replying(OperationReply("ok"))) as taken:
        answer = await client.post(f"{BASE}/pay", json={}, headers=bearer() | {"Idempotency-Key": "k"})

    assert (answer.status_code, taken) == (400, [])


MAY_HAVE = "It may have had an effect: find out before you repeat it."


@pytest.mark.parametrize(
    ("reply", "status", "kind", "detail"),
    [
        (OperationReply("refused", detail="No such ticket."), 422, "operation-refused", "No such ticket."),
        (OperationReply("forbidden"), 403, "forbidden", "Your roles don't allow this operation."),
        (OperationReply("unknown"), 404, "unknown-operation", "The bundle has no operation 'pay'."),
        (
            OperationReply("unavailable", detail="inner reason"),
            503,
            "unavailable",
            "The process of this bundle's operations does not run. It was not executed.",
        ),
        (
            OperationReply("timeout"),
            504,
            "operation-timeout",
            f"It did not end within 0.3 s and was cancelled. {MAY_HAVE}",
        ),
        (
            OperationReply("lost", detail="inner reason"),
            502,
            "operation-lost",
            f"The process that executed it has ended, or did not answer. {MAY_HAVE}",
        ),
    ],
)
async def test_an_end_without_a_result_is_a_problem(
    client: httpx2.AsyncClient, work: Any, refused: Any, reply: OperationReply, status: int, kind: str, detail: str
) -> None:
    async with work(replying(reply)):
        problem = refused(await client.post(f"{BASE}/pay", json={}, headers=bearer()), status)

    assert (problem["type"], problem["detail"]) == (f"urn:everturn:problem:{kind}", detail)


async def test_a_failure_names_the_request_and_no_reason(client: httpx2.AsyncClient, work: Any, refused: Any) -> None:
    async with work(replying(OperationReply("failed", detail="KeyError: 'inner'"))) as taken:
        problem = refused(await client.post(f"{BASE}/pay", json={}, headers=bearer()), 500)

    assert problem["type"] == "urn:everturn:problem:operation-failed"
    assert taken[0].request_id in problem["detail"]
    assert "inner" not in problem["detail"]


@pytest.mark.parametrize(
    ("name", "said"), [("list", "It has no effect"), ("again", "and can be repeated"), ("pay", MAY_HAVE)]
)
async def test_a_problem_says_what_a_repetition_would_do(
    client: httpx2.AsyncClient, work: Any, refused: Any, name: str, said: str
) -> None:
    async with work(replying(OperationReply("lost"))):
        problem = refused(await client.post(f"{BASE}/{name}", json={}, headers=bearer()), 502)

    assert said in problem["detail"]


async def test_wrong_arguments_are_named_with_their_fields(client: httpx2.AsyncClient, work: Any, refused: Any) -> None:
    reply = OperationReply("invalid", fields=(("limit", "Too large"), ("", "Not whole")))
    async with work(replying(reply)):
        problem = refused(await client.post(f"{BASE}/list", json={"limit": 7}, headers=bearer()), 422)

    assert problem["errors"] == [
        {"field": "body.limit", "message": "Too large"},
        {"field": "body", "message": "Not whole"},
    ]
    assert problem["detail"] == "body.limit: Too large"


async def test_without_a_worker_nothing_was_executed(
    client: httpx2.AsyncClient, published: None, redis_drivers: RedisDrivers, refused: Any
) -> None:
    problem = refused(await client.post(f"{BASE}/pay", json={}, headers=bearer()), 503)

    assert problem["detail"] == "No worker has taken the operation within 5 s. It was not executed."
    assert await redis_drivers.operations.take(["desk"], timeout_s=0.1) is None


async def test_a_worker_that_dies_leaves_the_outcome_unknown(
    client: httpx2.AsyncClient, work: Any, refused: Any
) -> None:
    async with work(replying(None)) as taken:
        problem = refused(await client.post(f"{BASE}/pay", json={}, headers=bearer()), 502)

    assert problem["type"] == "urn:everturn:problem:operation-lost"
    assert len(taken) == 1


async def test_a_caller_that_leaves_cancels_the_operation(
    client: httpx2.AsyncClient, work: Any, redis_drivers: RedisDrivers
) -> None:
    cancelled = asyncio.Event()
    began = asyncio.Event()

    async def wait(request: OperationRequest) -> None:
        began.set()
        if await redis_drivers.operations.wait_cancelled(request.request_id, timeout_s=20):
            cancelled.set()

    async with work(wait), asyncio.timeout(20):
        call = asyncio.create_task(client.post(f"{BASE}/pay", json={}, headers=bearer()))
        await began.wait()
        call.cancel()
        await cancelled.wait()


async def test_a_caller_that_leaves_early_withdraws_the_request(
    client: httpx2.AsyncClient, published: None, redis_drivers: RedisDrivers
) -> None:
    for _ in range(20):
        call = asyncio.create_task(client.post(f"{BASE}/pay", json={}, headers=bearer()))
        await asyncio.sleep(0.05)
        call.cancel()
    await asyncio.sleep(0.5)

    assert await redis_drivers.operations.take(["desk"], timeout_s=0.1) is None


async def test_one_person_has_only_so_many_at_once(client: httpx2.AsyncClient, work: Any, refused: Any) -> None:
    free, began = asyncio.Event(), asyncio.Semaphore(0)

    async def wait(_: OperationRequest) -> OperationReply:
        began.release()
        await free.wait()
        return OperationReply("ok", b"1")

    async with work(wait), asyncio.timeout(20):
        calls = [
            asyncio.create_task(client.post(f"{BASE}/list", json={}, headers=bearer())) for _ in range(OPEN_OF_PERSON)
        ]
        for _ in calls:
            await began.acquire()
        refused(await client.post(f"{BASE}/list", json={}, headers=bearer()), 429)
        other = asyncio.create_task(client.post(f"{BASE}/list", json={}, headers=bearer(user="bob")))
        await began.acquire()
        free.set()
        answers = await asyncio.gather(*calls, other)

    assert {answer.status_code for answer in answers} == {200}
