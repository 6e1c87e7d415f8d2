"""An agent with an MCP server at which each person has an account: the turn waits until its person has one."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import pytest_asyncio
from fastapi import Request
from fastapi.responses import Response
from helpers.authorization_server import AuthorizationServer, protect, run_authorization_server
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home
from helpers.mcp_servers import Asked, RawServer
from helpers.waiting import wait_until

from everturn.mcp_connections.connections import hash_state
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.sampled, pytest.mark.asyncio(loop_scope="module")]

CALL = json.dumps(
    {
        "action": "call_tool",
        "notes": "",
        "tool_call": {"tool_id": "mcp.mail.call_tool", "params": {"name": "act", "arguments": {"x": "1"}}},
    }
)
FINAL = json.dumps({"action": "complete", "notes": "", "final_answer": "That is all."})
SCRIPT = "".join(
    f"[[scripts]]\nwhen = '{word}'\n"
    + "".join(
        f"[[scripts.rounds]]\nreply = '''<channel:action>{reply}</channel:action>'''\n" for reply in (CALL, FINAL)
    )
    for word in ("mail", "again")
)
CALLBACK = "https://chat.example/mcp-connections/callback"
ENDED = ("completed", "failed", "cancelled")


@dataclass
class World:
    """A platform, and the servers outside of it. `called` are the accounts with which the MCP server was called."""

    platform: Platform
    login: AuthorizationServer
    called: list[str]

    @property
    def url(self) -> str:
        return self.platform.urls[0]

    def of(self, user: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, timeout=20, headers={"X-Dev-User": user})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    (files / "decisions.toml").write_text(SCRIPT)
    desk = files / "bundles" / "desk"
    desk.mkdir(parents=True)
    async with run_authorization_server() as login, RawServer().run() as raw:
        protect(raw, login)
        called: list[str] = []

        async def note(asked: Asked, writer: asyncio.StreamWriter) -> None:
            called.append(login.valid[asked.headers["authorization"].removeprefix("Bearer ")].account)
            await raw.reply(writer, asked, {"content": [{"type": "text", "text": asked.headers["authorization"]}]})

        raw.answer = note
        (desk / "bundle.toml").write_text(
            f'id = "desk"\n\n[mcp.mail]\nurl = "{raw.url}"\n\n'
            '[mcp.mail.oauth]\ngrant = "authorization_code"\ntitle = "Example Mail"\nscopes = ["mail.read"]\n'
        )
        env = {
            "EVERTURN_MODEL": f"scripted:{files / 'decisions.toml'}",
            "BUNDLES_DIR": str(files / "bundles"),
            "CONNECTIONS_KEY": "0f" * 32,
            "CONNECTIONS_CALLBACK_URL": CALLBACK,
        }
        async with Platform(home, ingresses=1, workers=2, env=env, durable=False, spawn=ForkingSpawn()) as platform:
            yield World(platform, login, called)


async def send(http: httpx2.AsyncClient, text: str) -> str:
    """The address of the turn of a new message."""
    answer = await http.post("/conversations/default/default/new/messages", json={"text": text, "bundle_id": "desk"})
    assert answer.status_code == 202, answer.text
    sent = answer.json()
    return f"/conversations/default/default/{sent['conversation_id']}/turns/{sent['turn_id']}"


async def load(http: httpx2.AsyncClient, turn: str, *states: str) -> Any:
    """The turn, once it has one of these states."""
    async with asyncio.timeout(60):
        while True:
            found = (await http.get(turn)).json()
            if found["status"] in states:
                return found
            assert found["status"] not in ENDED, json.dumps(found)[-1500:]
            await asyncio.sleep(0.1)


async def find_link(http: httpx2.AsyncClient, turn: str) -> str:
    found = await load(http, turn, "waiting")
    (approval,) = found["approvals"]
    assert "connect your account at Example Mail" in approval["explanation"]
    return approval["connect_url"]


async def return_to(world: World, address: str, *, press: bool = True) -> httpx2.Response:
    """What a browser does that the authorization server sends to this address, and the person at it."""
    async with httpx2.AsyncClient(base_url=world.url, timeout=20) as browser:
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{CALLBACK}/desk/mail"
        page = await browser.get(f"{parts.path}?{parts.query}")
        if not press or page.status_code != 200 or "<form" not in page.text:
            return page
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
        return await browser.post(parts.path, data=fields)


async def disconnect(http: httpx2.AsyncClient) -> None:
    assert (await http.delete("/mcp-connections/default/default")).status_code == 200


async def test_a_turn_waits_for_its_person_and_goes_on_with_their_account(world: World) -> None:
    async with world.of("ann") as http:
        turn = await send(http, "mail")
        link = await find_link(http, turn)
        asked = parse_qs(urlsplit(link).query)
        assert (asked["scope"], asked["redirect_uri"]) == (["mail.read"], [f"{CALLBACK}/desk/mail"])
        assert world.login.clients[0]["redirect_uris"] == [f"{CALLBACK}/desk/mail"]

        done = await return_to(world, world.login.authorize(link, "anns-account"))
        assert (done.status_code, "Signed in" in done.text) == (200, True)
        ended = await load(http, turn, *ENDED)
        assert ended["answer"] == "That is all."
        assert world.called == ["anns-account"]
        assert "[redacted]" in json.dumps(ended["steps"]) and "-of-anns" not in json.dumps(ended)

        await load(http, await send(http, "again"), *ENDED)
        assert world.called == ["anns-account"] * 2, "a connected person is asked again"
        listed = (await http.get("/mcp-connections/default/default")).json()["items"]
        assert [(each["bundle_id"], each["server"], each["title"]) for each in listed] == [
            ("desk", "mail", "Example Mail")
        ]


async def test_another_person_connects_an_account_of_their_own(world: World) -> None:
    world.called.clear()
    async with world.of("ben") as ben, world.of("cat") as cat:
        turns = {"ben": await send(ben, "mail"), "cat": await send(cat, "mail")}
        links = {"ben": await find_link(ben, turns["ben"]), "cat": await find_link(cat, turns["cat"])}
        for user in ("cat", "ben"):
            await return_to(world, world.login.authorize(links[user], f"{user}s-account"))
        await load(ben, turns["ben"], *ENDED)
        await load(cat, turns["cat"], *ENDED)
        assert sorted(world.called) == ["bens-account", "cats-account"]
        assert (await ben.get("/mcp-connections/default/default")).json()["items"] != []
        await disconnect(ben)
        assert (await ben.get("/mcp-connections/default/default")).json()["items"] == []
        assert (await cat.get("/mcp-connections/default/default")).json()["items"] != []
        assert await find_link(ben, await send(ben, "mail")) != links["ben"]


async def test_the_page_names_the_user_and_does_nothing_by_itself(world: World) -> None:
    async with world.of("mallory") as http:
        turn = await send(http, "mail")
        address = world.login.authorize(await find_link(http, turn), "victims-account")
        page = await return_to(world, address, press=False)
        assert "the user <b>mallory</b>" in page.text and "Example Mail" in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert (await http.get(turn)).json()["status"] == "waiting"


async def test_a_link_works_once(world: World) -> None:
    async with world.of("dan") as http:
        turn = await send(http, "mail")
        address = world.login.authorize(await find_link(http, turn), "dans-account")
        assert (await return_to(world, address)).status_code == 200
        again = await return_to(world, re.sub(r"code=[^&]+", "code=another", address))
        assert again.status_code == 401
        guessed = await return_to(world, re.sub(r"state=[^&]+", "state=guessed", address))
        assert guessed.status_code == 401
        await load(http, turn, *ENDED)


async def test_who_refuses_there_gets_an_answer_without_the_account(world: World) -> None:
    world.called.clear()
    async with world.of("eve") as http:
        turn = await send(http, "mail")
        state = parse_qs(urlsplit(await find_link(http, turn)).query)["state"][0]
        page = await return_to(world, f"{CALLBACK}/desk/mail?error=access_denied&error_description=no&state={state}")
        assert (page.status_code, "Not connected" in page.text) == (200, True)
        ended = await load(http, turn, *ENDED)
        assert ended["answer"] == "That is all." and "denied this call" in json.dumps(ended["steps"])
        assert world.called == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"iss": "https://other.example"}, "another authorization server has answered"),
        ({"code": "code-of-someone-else"}, "invalid_grant"),
    ],
)
async def test_an_answer_of_someone_else_connects_nothing(world: World, changed: dict[str, str], message: str) -> None:
    world.called.clear()
    async with world.of(f"fay-{len(message)}") as http:
        turn = await send(http, "mail")
        await return_to(world, world.login.authorize(await find_link(http, turn), "fays-account", **changed))
        ended = await load(http, turn, *ENDED)
        assert message in json.dumps(ended["steps"])
        assert (await http.get("/mcp-connections/default/default")).json()["items"] == []
        assert world.called == []


async def test_a_code_of_another_link_is_not_accepted(world: World) -> None:
    async with world.of("gus") as gus, world.of("hal") as hal:
        turns = {gus: await send(gus, "mail"), hal: await send(hal, "mail")}
        theirs = world.login.authorize(await find_link(gus, turns[gus]), "guss-account")
        code = parse_qs(urlsplit(theirs).query)["code"][0]
        await return_to(world, world.login.authorize(await find_link(hal, turns[hal]), "hals-account", code=code))
        ended = await load(hal, turns[hal], *ENDED)
        assert "invalid_grant" in json.dumps(ended["steps"])
        assert "guss-account" not in world.called


async def test_expired_tokens_are_renewed_once_by_all_workers(world: World) -> None:
    world.login.expires_in = 1
    async with world.of("ida") as http:
        turn = await send(http, "mail")
        await return_to(world, world.login.authorize(await find_link(http, turn), "idas-account"))
        await load(http, turn, *ENDED)
        world.login.expires_in = 3_600
        await asyncio.sleep(5.5)
        world.called.clear()
        world.login.forms.clear()
        turns = [await send(http, "again") for _ in range(4)]
        for each in turns:
            assert (await load(http, each, *ENDED))["answer"] == "That is all."
        assert world.called == ["idas-account"] * 4
        assert [form["grant_type"] for form in world.login.forms] == ["refresh_token"]


async def test_a_connection_that_has_ended_is_asked_for_again(world: World) -> None:
    world.login.expires_in = 1
    async with world.of("joe") as http:
        turn = await send(http, "mail")
        await return_to(world, world.login.authorize(await find_link(http, turn), "joes-account"))
        await load(http, turn, *ENDED)
        world.login.expires_in = 3_600
        world.login.refreshable.clear()
        await asyncio.sleep(5.5)
        ended = await load(http, await send(http, "again"), *ENDED)
        assert "The connection has ended" in json.dumps(ended["steps"])
        assert await find_link(http, await send(http, "mail"))


async def wait_for_release(world: World, turn: str) -> None:
    """Clients learn that a turn waits before its worker has released it."""
    query = f"SELECT status FROM turn WHERE id = '{turn.rpartition('/')[2]}'"
    await wait_until(lambda: world.platform.postgres.run_sql(query, database=DATABASE) == "waiting")


async def test_one_account_continues_all_turns_that_wait_for_it(world: World) -> None:
    world.called.clear()
    async with world.of("kim") as http:
        turns = [await send(http, "mail") for _ in range(3)]
        links = [await find_link(http, turn) for turn in turns]
        await return_to(world, world.login.authorize(links[1], "kims-account"))
        for turn in turns:
            ended = await load(http, turn, *ENDED)
            assert (ended["answer"], ended["approvals"][0]["state"]) == ("That is all.", "approved")
        assert world.called == ["kims-account"] * 3
        assert (await return_to(world, world.login.authorize(links[0], "another-account"))).status_code == 401


async def test_an_answer_whose_ingress_ended_is_repeated(world: World) -> None:
    world.called.clear()
    async with world.of("kit") as http:
        turns = [await send(http, "mail") for _ in range(3)]
        address = world.login.authorize([await find_link(http, turn) for turn in turns][1], "kits-account")
        for turn in turns:
            await wait_for_release(world, turn)
        given = parse_qs(urlsplit(address).query)
        saved = f"'{hash_state(given['state'][0])}', 'desk', 'mail', '{given['code'][0]}', '{given['iss'][0]}', 32"
        rows = world.platform.postgres.run_sql(f"SELECT answer_mcp_request({saved})", database=DATABASE)
        assert rows.count("conv_") == 3
        for _ in range(2):
            assert "Signed in" in (await return_to(world, address)).text
            for turn in turns:
                ended = await load(http, turn, *ENDED)
                assert (ended["answer"], ended["approvals"][0]["state"]) == ("That is all.", "approved")
        assert world.called == ["kits-account"] * 3


async def test_a_cancelled_turn_stays_cancelled_and_the_account_serves_the_next(world: World) -> None:
    world.called.clear()
    async with world.of("lea") as http:
        turn = await send(http, "mail")
        link = await find_link(http, turn)
        signals = f"{turn.partition('/turns/')[0]}/signals"
        assert (await http.post(signals, json={"kind": "cancel"})).status_code == 202
        assert (await load(http, turn, "cancelled"))["approvals"][0]["state"] == "withdrawn"

        page = await return_to(world, world.login.authorize(link, "leas-account"))
        assert (page.status_code, "Signed in" in page.text) == (200, True)
        assert (await http.get(turn)).json()["status"] == "cancelled" and world.called == []
        await load(http, await send(http, "again"), *ENDED)
        assert world.called == ["leas-account"]


async def test_a_link_that_has_expired_connects_nothing(world: World) -> None:
    world.called.clear()
    async with world.of("mia") as http:
        turn = await send(http, "mail")
        address = world.login.authorize(await find_link(http, turn), "mias-account")
        await wait_for_release(world, turn)
        for table, column in (("mcp_request", "conversation_id"), ("approval", "turn_id")):
            row = turn.split("/")[4 if table == "mcp_request" else 6]
            past = f"UPDATE {table} SET expires_at = now() - interval '1 s' WHERE {column} = '{row}'"
            await asyncio.to_thread(world.platform.postgres.run_sql, past, database=DATABASE)
        page = await return_to(world, address)
        assert (page.status_code, "older than 10 minutes" in page.text) == (401, True)
        ended = await load(http, turn, *ENDED)
        assert (ended["answer"], ended["approvals"][0]["state"]) == ("That is all.", "expired")
        assert "did not answer in time" in json.dumps(ended["steps"]) and world.called == []


async def test_a_turn_that_waits_outlives_its_workers(world: World) -> None:
    world.called.clear()
    async with world.of("nia") as http:
        turn = await send(http, "mail")
        link = await find_link(http, turn)
        await wait_for_release(world, turn)
        for worker in ("worker-1", "worker-2"):
            world.platform.kill(worker)
            assert await world.platform.wait_exit(worker) == -signal.SIGKILL
        assert (await return_to(world, world.login.authorize(link, "nias-account"))).status_code == 200
        for worker in ("worker-1", "worker-2"):
            await world.platform.restart(worker)
        assert (await load(http, turn, *ENDED))["answer"] == "That is all."
        assert world.called == ["nias-account"]


async def test_a_person_whose_worker_died_with_their_code_is_asked_again(world: World) -> None:
    world.called.clear()
    exchanging = asyncio.Event()

    async def hang(_: Request) -> Response:
        exchanging.set()
        await asyncio.sleep(60)
        return Response()

    async with world.of("oda") as http:
        turn = await send(http, "mail")
        link = await find_link(http, turn)
        world.login.override["/token"] = hang
        page = await return_to(world, world.login.authorize(link, "odas-account"))
        assert "Connected" not in page.text and "The agent finishes the connection." in page.text
        await exchanging.wait()
        for worker in ("worker-1", "worker-2"):
            world.platform.kill(worker)
            assert await world.platform.wait_exit(worker) == -signal.SIGKILL
        del world.login.override["/token"]
        for worker in ("worker-1", "worker-2"):
            await world.platform.restart(worker)
        steps = json.dumps((await load(http, turn, *ENDED))["steps"])
        assert "The worker stopped during this call" in steps and "has not connected" not in steps, steps
        # A call waits for the worker that has the code; once that must have ended, the person is asked before the call.
        turn = await send(http, "again")
        if (found := await load(http, turn, *ENDED, "waiting"))["status"] != "waiting":
            assert "a worker stopped before the account was connected" in json.dumps(found["steps"])
            turn = await send(http, "mail")
        link = await find_link(http, turn)
        (approval,) = (await http.get(turn)).json()["approvals"]
        assert "Your last sign-in there was interrupted" in approval["explanation"]
        await return_to(world, world.login.authorize(link, "odas-account"))
        await load(http, turn, *ENDED)
        assert world.called == ["odas-account"]


async def test_no_log_shows_a_code_a_token_or_a_link(world: World) -> None:
    texts = [log.read_text() for log in world.platform.home.logs.glob("*") if log.is_file()]
    assert any("A person has connected an account" in text for text in texts)
    for text in texts:
        assert not re.search(r"(token|refresh|code)-\d+-of-|state=|code_verifier|code_challenge", text)
