"""F25 and F2: turns of one user that occupy all slots for long don't delay anybody else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home
from helpers.waiting import wait_until

from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SLOTS, WORKERS = 4, 2
START_S = 6.0
"""Three times what a light tenant may wait, because other processes use the machine too."""


class Caller:
    """A client that sends messages."""

    def __init__(self, http: httpx2.AsyncClient, tenant: str, headers: dict[str, str]) -> None:
        self._http = http
        self._path = f"/conversations/{tenant}/default"
        self._headers = headers
        self._conversations: list[str] = []

    async def send(self, text: str) -> str:
        """The id of the turn."""
        answer = await self._http.post(f"{self._path}/new/messages", json={"text": text}, headers=self._headers)
        assert answer.status_code == 202, answer.text
        self._conversations.append(answer.json()["conversation_id"])
        return str(answer.json()["turn_id"])

    async def cancel_and_retract(self, conversation_id: str) -> int:
        """The status of the retraction."""
        signals = f"{self._path}/{conversation_id}/signals"
        cancel = await self._http.post(signals, json={"kind": "cancel"}, headers=self._headers)
        answer = await self._http.delete(f"{signals}/{cancel.json()['signal_id']}", headers=self._headers)
        return answer.status_code

    async def erase(self) -> None:
        for conversation_id in self._conversations:
            await self._http.delete(f"{self._path}/{conversation_id}", headers=self._headers)


class Site:
    """The running platform."""

    def __init__(self, platform: Platform, http: httpx2.AsyncClient) -> None:
        self._platform = platform
        self._http = http
        self._callers: list[Caller] = []

    def user(self, tenant: str, name: str) -> Caller:
        return self._add(Caller(self._http, tenant, {"X-Dev-User": name}))

    async def guest(self, tenant: str) -> Caller:
        answer = await self._http.post(f"/guests/{tenant}/default")
        assert answer.status_code == 201, answer.text
        return self._add(Caller(self._http, tenant, {"Authorization": f"Bearer {answer.json()['token']}"}))

    def _add(self, caller: Caller) -> Caller:
        self._callers.append(caller)
        return caller

    async def ask(self, statement: str) -> str:
        return await asyncio.to_thread(self._platform.postgres.run_sql, statement, database=DATABASE)

    def read(self, statement: str) -> int:
        return int(self._platform.postgres.run_sql(statement, database=DATABASE))

    async def wait_running(self, tenant: str, turns: int) -> None:
        statement = f"SELECT count(*) FROM turn WHERE tenant = '{tenant}' AND status = 'running'"
        await wait_until(lambda: int(self._platform.postgres.run_sql(statement, database=DATABASE)) >= turns)

    async def waited_s(self, turn_id: str) -> float:
        """Seconds that a turn waited, when it has ended."""
        ended = f"SELECT status FROM turn WHERE id = '{turn_id}'"
        await wait_until(lambda: self._platform.postgres.run_sql(ended, database=DATABASE) == "completed")
        return float(
            await self.ask(f"SELECT extract(epoch FROM started_at - created_at) FROM turn WHERE id = '{turn_id}'")
        )

    async def end_all(self) -> None:
        """The next test begins with free slots."""
        for caller in self._callers:
            await caller.erase()
        self._callers.clear()
        open_turns = "SELECT count(*) FROM turn WHERE status IN ('queued', 'running')"
        await wait_until(lambda: self._platform.postgres.run_sql(open_turns, database=DATABASE) == "0")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    script = Path(__file__).with_name("fairness_script.toml")
    env = {"EVERTURN_MODEL": f"scripted:{script}", "WORKER_SLOTS": str(SLOTS), "GUEST_SCOPES": "default/default"}
    home = copy_home(tmp_path_factory.mktemp("platform"))
    async with (
        Platform(home, workers=WORKERS, env=env, durable=False, spawn=ForkingSpawn()) as platform,
        httpx2.AsyncClient(base_url=platform.urls[0], trust_env=False, timeout=60) as http,
    ):
        yield Site(platform, http)


@pytest_asyncio.fixture(loop_scope="module")
async def site(running: Site) -> AsyncIterator[Site]:
    yield running
    await running.end_all()


@pytest.mark.parametrize("attack", ["sleep", "silent", "talk"])
async def test_a_user_holding_every_slot_delays_nobody(site: Site, attack: str) -> None:
    hostile = site.user("attack", f"mallory-{attack}")
    for _ in range(20):
        await hostile.send(attack)
    await site.wait_running("attack", WORKERS * SLOTS)

    waited = [await site.waited_s(await site.user("victim", "vera").send("Hello.")) for _ in range(3)]
    waited.append(await site.waited_s(await site.user("attack", "neighbour").send("Hello.")))

    assert max(waited) <= START_S, waited
    assert int(await site.ask("SELECT count(*) FROM turn WHERE tenant = 'attack' AND status = 'running'")) == 8


async def test_a_guest_holding_every_slot_delays_nobody(site: Site) -> None:
    guest = await site.guest("default")
    for _ in range(9):
        await guest.send("sleep")
    await site.wait_running("default", WORKERS * SLOTS)

    waited = [await site.waited_s(await site.user("default", "vera").send("Hello."))]
    waited.append(await site.waited_s(await (await site.guest("default")).send("Hello.")))

    assert max(waited) <= START_S, waited


async def test_flooding_tenants_delay_nobody(site: Site) -> None:
    for n in range(3):
        for m in range(7):
            await site.user(f"flood-{n}", f"user-{m % 4}").send("silent")
    await site.wait_running("flood-0", 1)
    await asyncio.sleep(3)  # until slots are lent and filled, which no event shows

    waited = [await site.waited_s(await site.user("victim", "vera").send("Hello.")) for _ in range(3)]

    assert max(waited) <= START_S, waited


async def test_a_retracted_cancel_does_not_run_a_turn_beyond_the_slots(site: Site) -> None:
    hostile = site.user("attack", "mallory-cancels")
    for _ in range(20):
        await hostile.send("silent")
    await site.wait_running("attack", WORKERS * SLOTS)
    queued = "SELECT conversation_id FROM turn WHERE tenant = 'attack' AND status = 'queued'"

    answers = [await hostile.cancel_and_retract(each) for each in (await site.ask(queued)).split()]

    assert answers.count(200) > 0, answers
    running = "SELECT count(*) FROM turn WHERE tenant = 'attack' AND status = 'running'"
    await wait_until(lambda: site.read(running) == WORKERS * SLOTS)
