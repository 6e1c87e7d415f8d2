"""F25: one tenant asks for ten times what may wait. It is told when to come, that is true, and others hardly notice."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from parts.waiting import wait_until
from redis import Redis
from stages.stage import Stage

from everturn_client.answers import Accepted
from everturn_client.errors import ProblemError
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

ROOM = 32
FLOOD = 10 * ROOM
PATIENCE_S = 10
"""Who is told more gives up, as people do."""
AT_ONCE = 16
"""New requests; more would only measure this machine. Who comes back waits for nobody."""
LIGHT = 3
MAX_SLOWER = 1.2
"""What is honoured beyond the room covers turns that take so much longer than thought."""
TURN = {"text": "script:slow please"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def light(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Few turns may wait, and of one tenant only half of them. Without proxies: they would slow down with the flood."""
    script = Path(__file__).with_name("scripts.toml")
    env = {"EVERTURN_MODEL": f"scripted:{script}", "QUEUE_MAX": str(2 * ROOM), "TENANT_QUEUED_MAX": str(ROOM)}
    home = tmp_path_factory.mktemp("flood")
    async with Platform(home, ingresses=2, workers=2, env=env, durable=False) as platform:
        stage = Stage(platform)
        yield stage
        await stage.quit()


@pytest_asyncio.fixture(loop_scope="module")
async def flooding(light: Stage) -> AsyncIterator[Stage]:
    """The tenant that floods."""
    stage = Stage(light.platform, tenant="flood")
    yield stage
    await stage.quit()


class Flood:
    """Fills the queue; then come many clients of one user, and each comes back once, exactly when it was told."""

    def __init__(self, urls: list[str]) -> None:
        self.answers: list[httpx2.Response] = []
        self.returned: list[int] = []
        self._urls = urls

    async def run(self) -> None:
        at_once = asyncio.Semaphore(AT_ONCE)
        limits = httpx2.Limits(max_connections=FLOOD)
        async with httpx2.AsyncClient(trust_env=False, timeout=60, limits=limits) as http:
            for n in range(ROOM):
                await self._post(http, n)
            await asyncio.gather(*(self._come(http, ROOM + n, at_once) for n in range(FLOOD)))

    async def _come(self, http: httpx2.AsyncClient, n: int, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            first = await self._post(http, n)
        wait_s = int(first.headers.get("retry-after", "0"))
        # A 503 of a part that did not answer in time keeps no place.
        if first.status_code == 429 and wait_s <= PATIENCE_S:
            await asyncio.sleep(wait_s)
            self.returned.append((await self._post(http, n)).status_code)

    async def _post(self, http: httpx2.AsyncClient, n: int) -> httpx2.Response:
        url = f"{self._urls[n % 2]}/conversations/flood/default/new/messages"
        answer = await http.post(url, json=TURN, headers={"Idempotency-Key": f"flood {n}"})
        self.answers.append(answer)
        return answer

    def check_answers(self) -> None:
        """All are let in, or told when to come and why."""
        refused = [answer for answer in self.answers if answer.status_code != 202]
        assert {answer.status_code for answer in refused} <= {429, 503}
        assert {answer.headers["content-type"] for answer in refused} == {"application/problem+json"}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert len(refused) >= FLOOD / 2


async def test_a_flood_is_told_when_to_come_and_a_light_tenant_is_let_in_and_answered(
    light: Stage, flooding: Stage
) -> None:
    alone = await asyncio.gather(*(talk(light, n) for n in range(LIGHT)))
    await wait_until(lambda: knows_pace(light))
    flood = Flood(light.platform.urls)
    running = asyncio.create_task(flood.run())
    await wait_until(lambda: running.done() or any(answer.status_code == 429 for answer in flood.answers))
    beside = [await talk(light, n) for n in range(LIGHT)]
    waiting = await ask(light, "SELECT count(*) FROM turn WHERE tenant = 'flood' AND status = 'queued'")
    await running
    accepted = [answer.json() for answer in flood.answers if answer.status_code == 202]
    await call_off(light, flooding)

    took = [await load_seconds(light, sent, since="created_at") for sent in (alone, beside)]
    paces = [await load_seconds(light, alone), await load_pace(light)]
    said = f"{flood.returned.count(202)} of {len(flood.returned)} that waited as told were let in"
    print(f"{said}; a light turn took {took[0]:.1f} s alone, {took[1]:.1f} s beside the flood")  # noqa: T201 - figures
    flood.check_answers()
    # Told times follow from how long turns took before; where the machine slows down meanwhile they can't be true.
    if paces[1] <= MAX_SLOWER * paces[0]:
        assert len(flood.returned) >= 5
        assert flood.returned.count(202) >= 0.95 * len(flood.returned) - 1, f"{said}; of so few one more may miss"
    assert int(waiting) > 0, "the light tenant waited for the flood to end"
    assert await ask(light, "SELECT count(*) FROM turn WHERE tenant = 'flood'") == str(len(accepted))
    for each in (*accepted[:2], *accepted[-2:]):
        await flooding.check_history(each["conversation_id"])


async def talk(light: Stage, n: int) -> Accepted:
    """A light tenant says something and waits for the answer."""
    sent = await light.clients[n % 2].send_message("new", TURN["text"])
    watcher = light.watch(sent.conversation_id)
    assert (await watcher.wait_ended(sent.turn_id)).status == "completed"
    await light.check_history(sent.conversation_id, watcher)
    return sent


def knows_pace(light: Stage) -> bool:
    """Whether a worker has told how long turns take; until then it is a guess, and told times are long."""
    with Redis.from_url(light.platform.redis.url, decode_responses=True) as redis:
        told = [json.loads(redis.get(key) or "{}") for key in redis.scan_iter("worker:*")]
    return any(worker.get("turn_s") for worker in told)


async def call_off(light: Stage, flooding: Stage) -> None:
    """Cancels what still waits, and waits until nothing of the flood is open."""
    rows = await ask(light, "SELECT conversation_id FROM turn WHERE tenant = 'flood' AND status = 'queued'")
    for conversation_id in rows.split():
        # A turn that has just ended refuses it.
        with contextlib.suppress(ProblemError):
            await flooding.clients[0].send_signal(conversation_id, "cancel", "")
    open_turns = "SELECT count(*) FROM turn WHERE tenant = 'flood' AND status IN ('queued', 'running')"
    await wait_until(lambda: light.platform.postgres.run_sql(open_turns, database=DATABASE) == "0")


async def load_seconds(light: Stage, said: list[Accepted], *, since: str = "started_at") -> float:
    """The longest of these turns."""
    ids = ", ".join(f"'{each.turn_id}'" for each in said)
    return float(await ask(light, f"SELECT extract(epoch FROM max(ended_at - {since})) FROM turn WHERE id IN ({ids})"))


async def load_pace(light: Stage) -> float:
    """How long the turns of the flood ran."""
    ran = "extract(epoch FROM avg(ended_at - started_at))"
    return float(await ask(light, f"SELECT {ran} FROM turn WHERE tenant = 'flood' AND status = 'completed'"))


async def ask(light: Stage, statement: str) -> str:
    return await asyncio.to_thread(light.platform.postgres.run_sql, statement, database=DATABASE)
