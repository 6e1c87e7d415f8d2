"""Real ingress processes on real servers, and clients for them."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import httpx2
import pytest
from helpers.documented import Documented
from helpers.forks import INGRESS_BOUNDS, open_forks
from helpers.ingresses import IngressProcess, list_objects, spawn_ingress
from helpers.sockets import SocketClient

from everturn.core.identity import Principal
from everturn.files.model import manifest_key, preamble_key
from everturn.files.opening import open_objects
from everturn.memory.postgres_memories import PostgresUserMemories
from everturn.memory.user_memories import UserMemory, make_memory_id
from everturn.postgres.pool import Database, open_database
from everturn.redis.users import INGRESS
from everturn.redis_drivers import RedisDrivers, open_redis_drivers
from everturn.timeline.forms import hash_text
from everturn.timeline.manifests import Manifest, ManifestSegment, Preamble
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.servers.redis import EmbeddedRedis

StartIngress = Callable[..., IngressProcess]


@pytest.fixture(scope="session")
def forks() -> ForkServerContext:
    """Where the session's ingresses come from: its imports are made once."""
    return open_forks("ingress")


@pytest.fixture(scope="module")
def ingress_env(
    database: DatabaseUrls, redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment of an ingress in development mode; its Redis is the session's."""
    return {
        "EVERTURN_MODE": "development",
        "DATABASE_URL": database.ingress,
        "REDIS_URL": redis_server.service_url(INGRESS),
        "OBJECTS_URL": tmp_path_factory.mktemp("objects").as_uri(),
        "LOG_LEVEL": "info",
        "SIGNING_SECRET": "0123456789abcdef0123456789abcdef",
        # Most modules have no worker, and their turns only gather.
        "QUEUE_MAX": "100000",
    }


@pytest.fixture(scope="module")
def start_ingress(
    forks: ForkServerContext, ingress_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartIngress]:
    """Starts ingress processes with other bounds and settings; all are gone at the module's end."""
    started: list[IngressProcess] = []
    folder = tmp_path_factory.mktemp("ingress")

    def start(bounds: dict[str, Any] | None = None, **env: str) -> IngressProcess:
        smaller = {INGRESS_BOUNDS: json.dumps(bounds)} if bounds else {}
        started.append(spawn_ingress(forks, folder, ingress_env | env | smaller))
        return started[-1]

    yield start
    for process in started:
        if process.alive():
            process.kill()


@pytest.fixture(scope="module")
def ingress(start_ingress: StartIngress) -> IngressProcess:
    """The module's ingress."""
    return start_ingress({"heartbeat_s": 1})


@pytest.fixture(scope="module")
def documented(ingress: IngressProcess) -> Documented:
    """The OpenAPI document of the module's ingress."""
    return Documented(httpx2.get(f"{ingress.url}/openapi.json", timeout=20).json())


@pytest.fixture
async def client(ingress: IngressProcess, documented: Documented) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the module's ingress that fails on undocumented statuses; the process survives each test."""
    hooks = {"response": [documented.check_response]}
    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20, event_hooks=hooks) as http:
        yield http
    assert ingress.alive(), ingress.log.read_text()[-4000:]


@dataclass
class Chat:
    """Frequent calls: send a message, start a conversation, read its state."""

    http: httpx2.AsyncClient
    base: str = "/conversations/default/default"

    async def send(self, text: str, conversation: str = "new", **more: Any) -> dict[str, Any]:
        answer = await self.http.post(f"{self.base}/{conversation}/messages", json={"text": text, **more})
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def state(self, conversation: str) -> dict[str, Any]:
        answer = await self.http.post(f"{self.base}/fetch", json={"conversation_id": conversation})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def chat(client: httpx2.AsyncClient) -> Chat:
    return Chat(client)


@pytest.fixture
async def sockets(ingress: Any) -> AsyncIterator[Callable[..., SocketClient]]:
    """Makes clients that are not connected yet; all are disconnected at the end."""
    made: list[SocketClient] = []

    def make(url: str | None = None) -> SocketClient:
        made.append(SocketClient(url or ingress.url))
        return made[-1]

    yield make
    for each in made:
        await each.sio.disconnect()


@pytest.fixture
async def worker_database(database: DatabaseUrls) -> AsyncIterator[Database]:
    """The database as a worker sees it."""
    async with open_database(database.worker, pool_size=2, application_name="test-worker") as opened:
        yield opened


@pytest.fixture
async def redis_drivers(redis_server: EmbeddedRedis) -> AsyncIterator[RedisDrivers]:
    """Redis as a worker sees it."""
    async with open_redis_drivers(redis_server.url, name="test-worker") as opened:
        yield opened


@pytest.fixture
async def untouched(
    database: DatabaseUrls, ingress: IngressProcess, ingress_env: dict[str, str]
) -> AsyncIterator[None]:
    """After the test, tables and object store are unchanged, and the process still runs without an error."""
    async with open_database(database.superuser, pool_size=1, application_name="test-counter") as rows:
        before, pid = await load_all(rows, ingress_env), ingress.process.pid
        yield
        assert ingress.alive()
        assert ingress.process.pid == pid
        assert await load_all(rows, ingress_env) == before
    async with httpx2.AsyncClient(base_url=ingress.url, timeout=20) as http:
        assert "ingress_unhandled_errors_total 0.0" in (await http.get("/metrics")).text


async def load_all(rows: Database, env: dict[str, str]) -> tuple[dict[str, int], list[Path]]:
    """How many rows each table has, and the files of the object store."""
    async with rows.connection() as connection:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        counts = " UNION ALL ".join(
            f"SELECT '{row['tablename']}' AS name, count(*) AS count FROM {row['tablename']}" for row in tables
        )
        found = {row["name"]: row["count"] for row in await connection.fetch(counts)}
    return found, list_objects(env)


def assert_problem(answer: httpx2.Response, status: int) -> dict[str, Any]:
    """The answer is a problem with this status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"].startswith("urn:everturn:problem:")
    return body


@pytest.fixture
def refused() -> Callable[..., dict[str, Any]]:
    """Checks that an answer is a problem."""
    return assert_problem


@pytest.fixture
def remember(worker_database: Database) -> Callable[..., Awaitable[str]]:
    """Save a memory as a worker does, and return its id."""

    async def save(user: str, text: str, *, tenant: str = "default", project: str = "default") -> str:
        now = datetime.now(UTC)
        memory = UserMemory(make_memory_id(text), text, now, now)
        await PostgresUserMemories(worker_database).save(Principal(tenant, project, user), memory, None)
        return memory.id

    return save


@pytest.fixture
def keep_context(ingress_env: dict[str, str]) -> Iterator[Callable[..., Awaitable[None]]]:
    """Save the input of a turn's first rounds as a worker does: `rounds` are their texts behind the system text, which
    `system_turn` stored."""

    async def save(
        conversation: str, turn: str, *rounds: Sequence[str], system: str = "You are helpful.", system_turn: str = ""
    ) -> None:
        preamble = Preamble(system=system).model_dump_json().encode()
        await objects.save(preamble_key(conversation, system_turn or turn), preamble)
        for number, texts in enumerate(rounds or [("[ANNOUNCE]",)], start=1):
            segments = (
                build_segment("system", system, cache_point=True),
                *(build_segment("tail", text, text=text) for text in texts),
            )
            manifest = Manifest(
                version=1, turn_id=turn, round=number, model="m", sent_at="2026-03-01T12:00:00.000Z",
                max_output_tokens=100, tokens=2, segments=segments, system_turn=system_turn or None,
            )  # fmt: skip
            await objects.save(manifest_key(conversation, turn, number), manifest.model_dump_json().encode())

    with open_objects(ingress_env["OBJECTS_URL"]) as objects:
        yield save


def build_segment(origin: Any, said: str, **more: Any) -> ManifestSegment:
    fields = {"ref": "", "seq": 0, "form": "", "chars": len(said), "tokens": 1, "cache_point": False}
    return ManifestSegment(origin=origin, sha256=hash_text(said), **(fields | more))
