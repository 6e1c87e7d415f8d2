"""People's own accounts at MCP servers: real authorization servers, also hostile ones, and several workers."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
import structlog
from fastapi import Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from helpers.authorization_server import (
    CLIENT_ID,
    CLIENT_SECRET,
    AuthorizationServer,
    protect,
    run_authorization_server,
)
from helpers.mcp_servers import TOOL, Agent, Asked, RawServer, open_agent, send
from mcp.shared.auth import ProtectedResourceMetadata
from mcp_types import Tool as ListedTool

from chat_proc.bundles.policy import BundlePolicy, PolicyRule
from chat_proc.catalog.mcp_servers import McpServer
from chat_proc.catalog.tool import ConnectLink, ToolSpec
from chat_proc.mcp import accounts, tools
from chat_proc.mcp.accounts import PersonalTokens, PersonSource, Sealer
from chat_proc.mcp.http import NoToken
from chat_proc.mcp.oauth import OAuthRequests
from chat_proc.mcp.tools import Accounts
from everturn.core.identity import Principal, Role
from everturn.core.ids import CallId, ConversationId
from everturn.core.logging import Redactor
from everturn.mcp_connections.connections import ServerKey
from everturn.mcp_connections.postgres import PostgresConnections
from everturn.postgres.pool import open_database
from everturn_local.servers.databases import DatabaseUrls

KEY, CALLBACK = ServerKey("desk", "s"), "https://chat.example/mcp-connections/callback"
SECRETS = {"b:mail_secret": CLIENT_SECRET}
OTHER = "The account of the person at Example Mail was connected for another configuration of this server."
_numbers = itertools.count(1)


@dataclass
class World:
    """One person, the servers outside, and the database that all workers share."""

    raw: RawServer
    login: AuthorizationServer
    store: PostgresConnections
    book: PostgresConnections
    ann: Principal

    @asynccontextmanager
    async def worker(self, key: str = "0f" * 32, url: str = "", **oauth: Any) -> AsyncGenerator[Agent]:
        grant = {"grant": "authorization_code", "title": "Example Mail"} | oauth
        server = McpServer.model_validate({"url": url or self.raw.url, "oauth": grant})
        own = Accounts(self.store, Sealer(key), CALLBACK, "desk")
        async with open_agent(server, accounts=own, secrets=SECRETS, owner=self.ann) as agent:
            yield agent

    async def find_link(self, agent: Agent) -> ConnectLink | None:
        call_id = CallId(f"call_01890000-0000-7000-8000-{next(_numbers):012d}")
        return await tokens_of(agent).find_link(call_id, self.ann, ConversationId("conv_1"))

    async def answer(self, agent: Agent, account: str = "anns-account", **changed: str) -> ConnectLink:
        """The person follows a link, authorizes and returns."""
        link = await self.find_link(agent)
        assert link is not None, "no link"
        given = dict(parse_qsl(urlsplit(self.login.authorize(link.url, account, **changed)).query))
        assert len(await self.book.answer_request(given["state"], KEY, given["code"], given.get("iss"))) == 1
        return link

    async def connect(self, agent: Agent) -> str:
        await self.answer(agent)
        return await tokens_of(agent).find(self.ann)

    def hold_tokens(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Requests for tokens set the first event, and wait for the second."""
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def answer(request: Request) -> Response:
            asked.set()
            await go_on.wait()
            return await self.login.answer_token(request)

        self.login.override["/token"] = answer
        return asked, go_on

    @property
    def grants(self) -> list[str]:
        """What tokens were issued for, in order."""
        return [form["grant_type"] for form in self.login.forms]


def tokens_of(agent: Agent) -> PersonalTokens:
    connector = agent.servers.tools[0].spec.connector
    assert isinstance(connector, PersonalTokens)
    return connector


@pytest.fixture
async def world(raw: RawServer, database: DatabaseUrls) -> AsyncIterator[World]:
    async with (
        run_authorization_server() as login,
        open_database(database.worker, pool_size=8, application_name="test-worker") as worker,
        open_database(database.ingress, pool_size=4, application_name="test-ingress") as ingress,
    ):
        protect(raw, login)
        ann = Principal("acme", f"project-{next(_numbers)}", "ann")
        yield World(raw, login, PostgresConnections(worker), PostgresConnections(ingress), ann)


async def fails(agent: Agent, ann: Principal) -> str:
    with pytest.raises(NoToken) as refused:
        await tokens_of(agent).find(ann)
    return refused.value.detail


def answering(status: int, body: object) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return JSONResponse(body, status_code=status)

    return answer


async def test_both_tools_work_with_the_persons_account(world: World) -> None:
    async with world.worker(scopes=["mail.read"]) as agent:
        assert agent.tool_ids == ["mcp.s.list_tools", "mcp.s.call_tool"]
        before = await agent.call("mcp.s.list_tools")
        assert (before.status, "has not connected an account at Example Mail" in before.text) == ("error", True)
        await world.answer(agent)
        listed = await agent.call("mcp.s.list_tools")
        assert "act: " in listed.text and isinstance(listed.value, dict)
        done = await agent.call("mcp.s.call_tool", name="act", arguments={"x": "1"})
        assert (done.status, done.text, done.untrusted) == ("ok", "done", True)
        wrong = await agent.call("mcp.s.call_tool", name="missing")
        assert (wrong.status, "The server has no tool 'missing'. It has: act" in wrong.text) == ("error", True)
    assert world.grants == ["authorization_code"]
    (form,) = world.login.forms
    assert (form["resource"], form["redirect_uri"]) == (world.raw.url, f"{CALLBACK}/desk/s")


async def test_a_call_builds_the_model_of_its_tool_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.raw.tools = [TOOL | {"name": f"act-{n}"} for n in range(20)]
    world.raw.tools.append({"name": "odd", "inputSchema": {"type": "object", "properties": {"a b": {}}}})
    built: list[str] = []

    def build_spec(tool_id: str, tool: ListedTool, server: McpServer) -> ToolSpec:
        built.append(tool.name)
        return original(tool_id, tool, server)

    original = tools.build_spec
    monkeypatch.setattr(tools, "build_spec", build_spec)
    async with world.worker() as agent:
        await world.connect(agent)
        assert (await agent.call("mcp.s.call_tool", name="act-7", arguments={"x": "1"})).text == "done"
        assert built == ["act-7"]
        odd = await agent.call("mcp.s.call_tool", name="odd")
        assert (odd.status, "models can't be given a parameter with the name 'a b'" in odd.text) == ("error", True)
        listed = await agent.call("mcp.s.list_tools")
        assert 'act-19: Act.\nParameters: {"type": "object", "properties"' in listed.text
        assert "The tool 'odd' can't be called: models can't be given a parameter with the name 'a b'" in listed.text


async def test_a_renewal_that_fails_is_not_tried_for_each_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renew_after(_: float) -> float:
        return 0.0

    monkeypatch.setattr(accounts, "renew_after", renew_after)
    async with world.worker() as one, world.worker() as two:
        await world.connect(one)
        world.login.override["/token"] = answering(503, {})
        asked = len(world.login.paths)
        for worker in (one, two):
            assert (await worker.call("mcp.s.call_tool", name="act")).text == "done"
        assert len(world.login.paths) == asked + 1


async def test_rules_about_names_agree_with_what_is_called(world: World) -> None:
    rules = BundlePolicy([PolicyRule(tool="mcp.s.call_tool", when="args.name == 'send-mail'", then="ask")])
    shown = ("send-mail", "send_mail", "send.mail", "s" * 150)
    lookalikes = ("a\nb", "send-mail ", *(f"send-mail{char}" for char in "\ufe0f\u034f\u3164\U000e0100\u2800\xa0"))
    world.raw.tools = [TOOL | {"name": name} for name in (*shown, *lookalikes, "", " ")]
    async with world.worker() as agent:
        await world.connect(agent)
        listed = await agent.call("mcp.s.list_tools")
        assert isinstance(listed.value, dict)
        names = [each["name"] for each in listed.value["tools"]]
        assert names == [*shown]
        assert "The tool 'a\\nb' can't be called: its name can't be shown as it is." in listed.text
        assert listed.text.count("its name can't be shown as it is") == len(lookalikes)
        assert listed.text.count("can't be called: it has no name") == 2
        spec = agent.kit().spec("mcp.s.call_tool")
        asked: list[str] = []
        for name in (*names, *lookalikes, "", "Send-Mail", "send\u2010mail"):
            if rules.judge(spec, {"name": name}, world.ann, untrusted=False) is not None:
                asked.append(name)
            await agent.call("mcp.s.call_tool", name=name)
        assert asked == ["send-mail"]
    called = [each.body["params"]["name"] for each in world.raw.asked if each.rpc == "tools/call"]
    assert called == names, "each listed tool can be called, by its own name only"


@pytest.mark.parametrize("grant", ["people", "client"])
async def test_a_server_can_not_widen_tokens_to_its_host(world: World, grant: str) -> None:
    host = world.raw.url.removesuffix("mcp")
    protect(world.raw, world.login, resource=host)
    if grant == "people":
        async with world.worker() as agent:
            await world.connect(agent)
            assert (await agent.call("mcp.s.call_tool", name="act")).text == "done"
    else:
        oauth = {"grant": "client_credentials", "issuer": world.login.url, "client_id": CLIENT_ID}
        server = {"url": world.raw.url, "oauth": oauth | {"client_secret": "${b:mail_secret}"}}
        async with open_agent(McpServer.model_validate(server), secrets=SECRETS) as agent:
            assert (await agent.call("mcp.s.act")).text == "done"
    assert {form["resource"] for form in world.login.forms} == {world.raw.url}


@pytest.mark.parametrize("expires_in", [1, 30, 61])
async def test_tokens_with_a_short_life_are_not_renewed_for_each_request(world: World, expires_in: int) -> None:
    world.login.expires_in = expires_in
    async with world.worker() as agent:
        await world.connect(agent)
        assert (await agent.call("mcp.s.call_tool", name="act")).text == "done"
    assert world.grants == ["authorization_code"]


async def test_a_link_asks_for_one_code_with_pkce(world: World) -> None:
    async with world.worker() as agent:
        links = [await world.find_link(agent) for _ in range(2)]
    asked = [parse_qs(urlsplit(link.url).query) for link in links if link]
    for name in ("state", "code_challenge"):
        assert asked[0][name] != asked[1][name] and len(asked[0][name][0]) == 43
    assert asked[0]["code_challenge_method"] == ["S256"] and asked[0]["resource"] == [world.raw.url]
    assert len(world.login.clients) == 1, "each link registers a client"


async def test_what_is_stored_shows_no_token(world: World, database: DatabaseUrls) -> None:
    async with world.worker() as agent:
        await world.answer(agent)
        token = await tokens_of(agent).find(world.ann)
        stored = await world.store.load(world.ann, KEY)
    assert stored and stored.sealed
    assert not any(each.encode() in stored.sealed for each in (token, "refresh", world.login.url))


async def test_two_workers_exchange_a_code_once(world: World) -> None:
    world.login.delay_s = 0.3
    async with world.worker() as one, world.worker() as two:
        await world.answer(one)
        found = await asyncio.gather(*(tokens_of(each).find(world.ann) for each in (one, two, one, two)))
        assert len(set(found)) == 1 and world.grants == ["authorization_code"]


async def test_every_token_of_a_call_is_hidden(world: World) -> None:
    async with world.worker() as agent:
        await world.connect(agent)
        redactor = Redactor()
        source = PersonSource(tokens_of(agent), world.ann, redactor)
        first = await source.find()
        await tokens_of(agent).find(world.ann, first)
        second = await source.find()
    assert first != second and redactor.redact(f"{first} {second}") == "[redacted] [redacted]"


async def test_two_workers_renew_tokens_once(world: World) -> None:
    world.login.expires_in = 1
    async with world.worker() as one, world.worker() as two:
        first = await world.connect(one)
        world.login.expires_in, world.login.delay_s = 3_600, 0.3
        found = await asyncio.gather(*(tokens_of(each).find(world.ann, first) for each in (one, two, one, two)))
        assert len(set(found)) == 1 and found[0] != first
        assert world.grants == ["authorization_code", "refresh_token"]


async def test_a_cancelled_call_loses_no_tokens(world: World) -> None:
    world.login.delay_s = 0.3
    async with world.worker() as agent:
        await world.answer(agent)
        waiting = asyncio.create_task(tokens_of(agent).find(world.ann))
        await asyncio.sleep(0.15)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await tokens_of(agent).find(world.ann) in world.login.valid
        assert world.grants == ["authorization_code"]


async def test_a_worker_that_stops_finishes_its_request(world: World) -> None:
    world.login.delay_s = 0.3
    async with world.worker() as agent:
        await world.answer(agent)
        waiting = asyncio.create_task(tokens_of(agent).find(world.ann))
        await asyncio.sleep(0.15)
    assert await waiting in world.login.valid
    async with world.worker() as other:
        assert await world.find_link(other) is None


async def test_a_closing_that_is_cancelled_leaves_no_request(world: World) -> None:
    world.login.override["/token"] = hang
    async with world.worker() as agent:
        await world.answer(agent)
        waiting = asyncio.create_task(tokens_of(agent).find(world.ann))
        await asyncio.sleep(0.15)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await tokens_of(agent).close()
        await asyncio.wait({waiting}, timeout=2)
    assert waiting.cancelled()


@pytest.mark.parametrize("pause_s", [0.0, 0.1])
async def test_a_call_that_is_cancelled_twice_leaves_no_connection(
    world: World, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_proc.mcp.connection.CLOSE_S", 0.5)
    hanging = asyncio.Event()

    async def hang(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        hanging.set()
        await asyncio.sleep(30)
        return True

    async with world.worker() as agent:
        await world.connect(agent)
        world.raw.before = hang
        call = asyncio.create_task(agent.call("mcp.s.list_tools"))
        await hanging.wait()
        (running,) = [task for task in asyncio.all_tasks() if task.get_name() == "mcp s of a person"]
        for _ in range(2):
            call.cancel()
            await asyncio.sleep(pause_s)
        await asyncio.wait({call, running}, timeout=3)
        assert call.cancelled() and running.done()


async def test_a_person_whose_worker_died_with_their_code_is_asked_again(world: World) -> None:
    async with world.worker() as agent:
        await world.answer(agent)
        assert await world.store.claim_answer(world.ann, KEY, accepts=bool, lease_s=0.5) is not None
        assert await world.find_link(agent) is None, "another worker exchanges the code"
        stopped = "The person signed in at Example Mail, but a worker stopped before the account was connected."
        assert stopped in await fails(agent, world.ann)
        assert stopped in (await agent.call("mcp.s.list_tools")).text
        assert "Your last sign-in there was interrupted" in (await world.answer(agent)).why
        assert await tokens_of(agent).find(world.ann) in world.login.valid
        assert await world.find_link(agent) is None


async def test_a_deleted_connection_stays_deleted(world: World) -> None:
    world.login.delay_s = 0.5
    async with world.worker() as agent:
        await world.answer(agent)
        waiting = asyncio.create_task(tokens_of(agent).find(world.ann))
        await asyncio.sleep(0.25)
        await world.book.delete(world.ann)
        with pytest.raises(NoToken, match="deleted"):
            await waiting
        assert await world.find_link(agent) is not None


async def test_a_token_is_not_used_after_its_connection_was_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "renew_after", lambda _: 0.0)  # pyright: ignore[reportUnknownLambdaType]
    async with world.worker() as agent:
        await world.connect(agent)

        async def fail(_: Request) -> Response:
            await world.book.delete(world.ann)
            return JSONResponse({}, status_code=503)

        world.login.override["/token"] = fail
        assert "has not connected an account" in await fails(agent, world.ann)


async def test_a_stalled_worker_keeps_the_answer_to_another_workers_link(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_id, conversation_id = CallId("call_01890000-0000-7000-8000-999999999999"), ConversationId("conv_1")
    async with world.worker() as one, world.worker() as two:
        save, stalled, go_on = world.store.save_request, asyncio.Event(), asyncio.Event()

        async def stall(*given: Any) -> bool:
            stalled.set()
            await go_on.wait()
            return await save(*given)

        monkeypatch.setattr(world.store, "save_request", stall)
        late = asyncio.create_task(tokens_of(one).find_link(call_id, world.ann, conversation_id))
        await stalled.wait()
        monkeypatch.setattr(world.store, "save_request", save)
        link = await tokens_of(two).find_link(call_id, world.ann, conversation_id)
        assert link is not None
        given = dict(parse_qsl(urlsplit(world.login.authorize(link.url, "anns-account")).query))
        assert len(await world.book.answer_request(given["state"], KEY, given["code"], given.get("iss"))) == 1
        go_on.set()
        assert await late is None
        assert await tokens_of(two).find(world.ann) in world.login.valid


async def test_a_call_uses_the_connection_that_replaced_its_own(world: World) -> None:
    async with world.worker() as one, world.worker() as two:
        first = await world.connect(one)
        renewing, go_on = world.hold_tokens()
        waiting = asyncio.create_task(tokens_of(one).find(world.ann, first))
        await renewing.wait()
        await world.book.delete(world.ann)
        del world.login.override["/token"]
        second = await world.connect(two)
        go_on.set()
        assert await waiting == second


@pytest.mark.parametrize("renewable", [True, False])
async def test_a_connection_that_has_ended_is_asked_for_again(world: World, renewable: bool) -> None:
    async with world.worker() as agent:
        if not renewable:
            world.login.override["/token"] = answering(200, {"access_token": "only-one-token", "token_type": "Bearer"})
        token = await world.connect(agent)
        world.login.refreshable.clear()
        assert "The connection has ended." in await fails_with(agent, world.ann, token)
        assert await world.store.load(world.ann, KEY) is None
        assert await world.find_link(agent) is not None


async def fails_with(agent: Agent, ann: Principal, rejected: str) -> str:
    with pytest.raises(NoToken) as refused:
        await tokens_of(agent).find(ann, rejected)
    return refused.value.detail


async def test_a_token_is_renewed_during_a_call_but_not_again_and_again(world: World) -> None:
    async with world.worker() as agent:
        await world.connect(agent)
        world.login.revoke_all()
        assert (await agent.call("mcp.s.call_tool", name="act", arguments={"x": "1"})).text == "done"
        assert world.grants == ["authorization_code", "refresh_token"]

        async def reject(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            await send(writer, 401, b"")
            return True

        world.raw.before = reject
        refused = await agent.call("mcp.s.call_tool", name="act", arguments={"x": "1"})
        assert "rejects access tokens that were just issued to this person" in refused.text
        assert len(world.grants) < 8


async def test_an_authorization_server_that_is_away_ends_no_connection(world: World) -> None:
    async with world.worker() as agent:
        token = await world.connect(agent)
        for status, body in ((503, {}), (400, {"error": "invalid_request"}), (400, "no JSON of the protocol")):
            world.login.override["/token"] = answering(status, body)
            assert f"it answered {status}" in await fails_with(agent, world.ann, token)
        world.login.override["/token"] = answering(401, {"error": "invalid_client"})
        assert "The connection has ended" in await fails_with(agent, world.ann, token), "a registered client is gone"


async def test_a_wrong_secret_of_the_operator_ends_no_connection(world: World) -> None:
    client = {"issuer": world.login.url, "client_id": CLIENT_ID, "client_secret": "${b:mail_secret}"}
    async with world.worker(**client) as agent:
        token = await world.connect(agent)
        assert world.login.clients == [] and world.login.forms[0]["client_secret"] == CLIENT_SECRET
        world.login.override["/token"] = answering(401, {"error": "invalid_client"})
        assert "invalid_client" in await fails_with(agent, world.ann, token)
        del world.login.override["/token"]
        assert await tokens_of(agent).find(world.ann, token) != token


async def test_the_errors_of_a_server_show_no_secret(world: World) -> None:
    sent: list[str] = []

    async def repeat(request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        secret = form.get("refresh_token") or f"{form['code']} {form['code_verifier']}"
        sent.extend(secret.split())
        return JSONResponse({"error": "invalid_grant", "error_description": f"{secret} is wrong"}, status_code=400)

    with structlog.testing.capture_logs() as logs:
        async with world.worker() as agent:
            world.login.override["/token"] = repeat
            await world.answer(agent)
            texts = [await fails(agent, world.ann)]
            del world.login.override["/token"]
            token = await world.connect(agent)
            world.login.override["/token"] = repeat
            texts.append(await fails_with(agent, world.ann, token))
    assert len(sent) == 3 and all("it answered 400, invalid_grant." in text for text in texts)
    assert not any(secret in json.dumps([texts, logs], default=str) for secret in (*sent, token))


async def test_tokens_are_for_their_person_address_and_key_only(world: World) -> None:
    async with world.worker() as agent:
        await world.connect(agent)
        stored = await world.store.load(world.ann, KEY)
        assert stored and stored.sealed
        bob = replace(world.ann, user_id="bob")
        async with world.worker() as other:
            world.ann, ann = bob, world.ann
            await world.connect(other)
            theirs = await world.store.load(bob, KEY)
            assert theirs and await world.store.replace(bob, KEY, theirs.version, stored.sealed)
            assert OTHER in await fails(other, bob), "a moved row opens"
            world.ann = ann
    async with RawServer().run() as elsewhere:
        protect(elsewhere, world.login)
        async with world.worker(url=elsewhere.url) as agent:
            assert OTHER in await fails(agent, world.ann)
            assert elsewhere.asked == [], "another server gets the token"
            await world.connect(agent)
    async with world.worker(key="1e" * 32, url=elsewhere.url) as agent:
        assert OTHER in await fails(agent, world.ann)


async def test_guests_are_asked_to_sign_in(world: World) -> None:
    world.ann = replace(world.ann, roles=frozenset({Role.ANONYMOUS}))
    async with world.worker() as agent:
        assert await world.find_link(agent) is None
        assert "Guests can't connect accounts" in (await agent.call("mcp.s.list_tools")).text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"iss": "https://other.example"}, "another authorization server has answered"),
        ({"code": "code-of-another-person"}, "invalid_grant"),
    ],
)
async def test_an_answer_of_another_server_or_link_connects_nothing(
    world: World, changed: dict[str, str], why: str
) -> None:
    async with world.worker() as agent:
        await world.answer(agent, **changed)
        assert why in await fails(agent, world.ann)
        assert await world.store.load(world.ann, KEY) is None and world.grants == []


async def test_a_server_that_promises_to_name_itself_has_to(world: World) -> None:
    async with world.worker() as agent:
        link = await world.find_link(agent)
        assert link
        given = dict(parse_qsl(urlsplit(world.login.authorize(link.url, "anns-account")).query))
        await world.book.answer_request(given["state"], KEY, given["code"], None)
        assert "another authorization server has answered" in await fails(agent, world.ann)


ADDRESS = "names no address at which people can authorize"


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"code_challenge_methods_supported": ["plain"]}, "does not support PKCE with S256"),
        ({"code_challenge_methods_supported": None}, "does not support PKCE with S256"),
        ({"authorization_endpoint": None}, ADDRESS),
        ({"authorization_endpoint": "javascript:alert(1)"}, ADDRESS),
        ({"authorization_endpoint": "https://user@login.example/"}, ADDRESS),
        ({"authorization_endpoint": "https://[login/"}, ADDRESS),
        ({"authorization_endpoint": "https://login.example/#there"}, ADDRESS),
        ({"authorization_endpoint": "https://login.example/\n\x1b[2J"}, "is not metadata of a server"),
        ({"authorization_endpoint": f"https://login.example/{'x' * 3_000}"}, "is not metadata of a server"),
        ({"authorization_endpoint": ["https://login.example/"]}, "is not metadata of a server"),
        ({"issuer": "https://other.example"}, "is about another issuer"),
        ({"registration_endpoint": None}, "does not register clients by itself"),
        ({"registration_endpoint": "file:///etc/passwd"}, "is not an address of a web server"),
        ({"registration_endpoint": "https://169.254.169.254/latest"}, "must not be contacted"),
        ({"padding": "x" * 70_000}, "can't be read"),
    ],
)
async def test_hostile_metadata_make_no_link(
    world: World, metadata: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "LINK_AGAIN_S", 0.0)
    world.login.more_metadata = metadata
    async with world.worker() as agent:
        assert await world.find_link(agent) is None
        text = (await agent.call("mcp.s.list_tools")).text
        assert "There is no link to connect one" in text and why in text and len(text) < 800
        world.login.more_metadata = {}
        assert await world.find_link(agent) is not None, "the server is not asked again"


async def test_why_there_was_no_link_is_said_until_there_is_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.worker() as agent:
        assert await world.find_link(agent) is not None
        with monkeypatch.context() as patched:
            patched.setattr(accounts, "LINK_TIMEOUT_S", 0.0)
            assert await world.find_link(agent) is None
        assert "A link could not be made within 0 s" in (await agent.call("mcp.s.list_tools")).text
        assert await world.find_link(agent) is not None
        assert "Call the tool directly" in (await agent.call("mcp.s.list_tools")).text


async def test_a_server_with_tls_can_not_name_an_issuer_without(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://mail.example/mcp"
    about = {"resource": url, "authorization_servers": [world.login.url]}

    async def find(*_: object, **__: object) -> ProtectedResourceMetadata:
        return ProtectedResourceMetadata.model_validate(about)

    monkeypatch.setattr(OAuthRequests, "find_resource", find)
    async with world.worker(url=url) as agent:
        assert await world.find_link(agent) is None
        assert "names an issuer without TLS" in (await agent.call("mcp.s.list_tools")).text
    assert world.login.paths == []


async def redirect(_: Request) -> Response:
    return RedirectResponse("https://other.example/register", status_code=307)


async def hang(_: Request) -> Response:
    await asyncio.sleep(30)
    return Response()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answering(400, {"error": "invalid_redirect_uri"}), "it answered 400, invalid_redirect_uri"),
        (answering(201, {}), "client_id"),
        (answering(201, ["client"]), "did not register a client"),
        (answering(201, {"client_id": ""}), "client_id"),
        (answering(201, {"client_id": "x" * 1_001}), "client_id"),
        (answering(201, {"client_id": "a\nb"}), "client_id"),
        (answering(201, {"client_id": "a", "client_secret": {"a": 1}}), "client_secret"),
        (answering(201, {"client_id": "a", "padding": "x" * 70_000}), "can't be read"),
        (redirect, "it answered 307"),
    ],
)
async def test_hostile_registrations_make_no_link(
    world: World, answer: Callable[[Request], Awaitable[Response]], why: str
) -> None:
    world.login.override["/register"] = answer
    async with world.worker() as agent:
        assert await world.find_link(agent) is None
        assert why in (await agent.call("mcp.s.list_tools")).text


async def test_calls_wait_together_for_a_server_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "TOKEN_TIMEOUT_S", 0.5)
    world.login.override["/register"] = hang
    async with world.worker() as agent:
        async with asyncio.timeout(2):
            assert await asyncio.gather(*(world.find_link(agent) for _ in range(20))) == [None] * 20
        assert "The authorization server did not answer within 0.5 s" in (await agent.call("mcp.s.list_tools")).text


async def test_links_in_a_row_share_the_failure_of_a_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "TOKEN_TIMEOUT_S", 0.5)
    monkeypatch.setattr(accounts, "LINK_AGAIN_S", 60.0)
    world.login.override["/register"] = hang
    async with world.worker() as agent:
        assert [await world.find_link(agent) for _ in range(4)] == [None] * 4
    assert world.login.paths.count("/register") == 1


async def test_a_link_that_takes_too_long_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.worker() as agent:
        await world.answer(agent)
        monkeypatch.setattr(accounts, "LINK_TIMEOUT_S", 0.5)
        _, go_on = world.hold_tokens()
        with structlog.testing.capture_logs() as logs:
            assert await world.find_link(agent) is None
        go_on.set()
        assert "A link could not be made within 0.5 s" in str(logs)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ({"access_token": ""}, "can't be sent in a header"),
        ({"access_token": "a\r\nHost: other.example"}, "can't be sent in a header"),
        ({"access_token": "x" * 20_000}, "can't be sent in a header"),
        ({"access_token": ["x"]}, "did not issue a token that can be used"),
        ({"access_token": "token", "token_type": "mac"}, "did not issue a token that can be used"),
        ({"access_token": "token", "refresh_token": 7}, "did not issue a token that can be used"),
    ],
)
async def test_hostile_tokens_connect_nothing(world: World, token: dict[str, Any], why: str) -> None:
    world.login.override["/token"] = answering(200, {"token_type": "Bearer"} | token)
    async with world.worker() as agent:
        await world.answer(agent)
        assert why in await fails(agent, world.ann)
        assert await world.store.load(world.ann, KEY) is None


@pytest.mark.parametrize("lifetime_s", [10**400, -(10**30), 0])
async def test_any_lifetime_of_a_token_can_be_read(world: World, lifetime_s: int) -> None:
    world.login.override["/token"] = answering(
        200, {"access_token": "some-token", "token_type": "Bearer", "expires_in": lifetime_s}
    )
    async with world.worker() as agent:
        await world.answer(agent)
        assert await tokens_of(agent).find(world.ann) == "some-token"


async def test_only_the_server_itself_says_where_its_metadata_are(world: World) -> None:
    inner = world.raw.before
    places = {"other": f"{world.login.url}/inner", "own": world.raw.url.replace("/mcp", "/about")}
    asked_there: list[str] = []

    async def challenge(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        asked_there.append(asked.path)
        if asked.path == "/mcp" and "authorization" not in asked.headers:
            named = f'WWW-Authenticate: Bearer resource_metadata="{places[where]}"\r\n'
            writer.write(f"HTTP/1.1 401 Unauthorized\r\n{named}Content-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return True
        if asked.path == "/about":
            about = {"resource": world.raw.url, "authorization_servers": [world.login.url]}
            await world.raw.send_json(writer, about)
            return True
        return await inner(asked, writer) if inner else False

    world.raw.before = challenge
    for where in ("other", "own"):
        asked_there.clear()
        async with world.worker() as agent:
            assert await world.find_link(agent) is not None
        assert "/inner" not in world.login.paths
        assert ("/about" in asked_there) == (where == "own")


async def test_a_late_answer_is_used_before_the_person_is_asked_again(world: World) -> None:
    async with world.worker() as agent:
        await world.answer(agent)
        assert await world.find_link(agent) is None and world.grants == ["authorization_code"]
        await world.book.delete(world.ann)
        await world.answer(agent, code="code-of-another-person")
        assert await world.find_link(agent) is not None


async def test_a_connection_is_not_used_once_another_issuer_is_configured(world: World) -> None:
    honest = world.login
    async with run_authorization_server() as other:
        protect(world.raw, other)
        other.override["/register"] = answering(201, {"client_id": CLIENT_ID})
        world.login = other
        async with world.worker() as agent:
            await world.connect(agent)
        async with world.worker(issuer=other.url) as agent:
            assert await tokens_of(agent).find(world.ann) in other.valid, "the same issuer, now by its name"
        client = {"issuer": honest.url, "client_id": CLIENT_ID, "client_secret": "${b:mail_secret}"}
        async with world.worker(**client) as agent:
            assert OTHER in await fails(agent, world.ann)
            assert [form.get("client_secret") for form in other.forms] == [None], "the other server gets the secret"
            world.login = honest
            protect(world.raw, honest)
            assert "connected before is for another configuration" in (await world.answer(agent)).why
            assert await tokens_of(agent).find(world.ann) in honest.valid, "the next connection does not replace it"


async def test_a_turn_with_the_earlier_issuer_leaves_the_new_connection_and_its_code(world: World) -> None:
    earlier = world.login
    async with run_authorization_server() as later:
        configured = {"issuer": earlier.url}
        async with world.worker(**configured) as old, world.worker(issuer=later.url) as new:
            assert await world.connect(old) in earlier.valid
            protect(world.raw, later)
            world.login = later
            await world.answer(new)
            assert await tokens_of(old).find(world.ann) in earlier.valid, "a worker claims the code of another issuer"
            token = await tokens_of(new).find(world.ann)
            assert token in later.valid
            assert OTHER in await fails(old, world.ann)
            assert await tokens_of(new).find(world.ann) == token, "a worker deletes the connection of another issuer"


async def test_a_code_of_another_issuer_is_not_exchanged(world: World) -> None:
    honest = world.login
    async with run_authorization_server() as other:
        protect(world.raw, other)
        world.login = other
        async with world.worker() as agent:
            await world.answer(agent)
        async with world.worker(issuer=honest.url) as agent:
            assert OTHER in await fails(agent, world.ann)
        assert other.forms == [] and honest.forms == []
        async with world.worker() as agent:
            assert await tokens_of(agent).find(world.ann) in other.valid


@pytest.mark.parametrize("named", ["https://[x", "http://127.0.0.1:99999999/x", "\x7f", "https://\u2100/"])
async def test_a_place_of_metadata_that_is_no_address_is_ignored(world: World, named: str) -> None:
    inner = world.raw.before

    async def challenge(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        if asked.path == "/mcp":
            await send(writer, 401, b"", f'WWW-Authenticate: Bearer resource_metadata="{named}"\r\n')
            return True
        return await inner(asked, writer) if inner else False

    world.raw.before = challenge
    async with world.worker() as agent:
        assert await world.find_link(agent) is not None


@pytest.mark.parametrize("endpoint", ["https://[x", "http://127.0.0.1:999999/", "http://h:abc/", "http://"])
async def test_endpoints_that_are_no_addresses_are_problems(world: World, endpoint: str) -> None:
    world.login.more_metadata = {"registration_endpoint": endpoint}
    async with world.worker() as agent:
        assert await world.find_link(agent) is None
    world.login.more_metadata = {"token_endpoint": endpoint}
    async with world.worker() as agent:
        await world.answer(agent)
        await fails(agent, world.ann)
    world.login.more_metadata = {"issuer": endpoint}
    async with world.worker() as agent:
        assert await world.find_link(agent) is None


@pytest.mark.parametrize("name", ["registration_endpoint", "token_endpoint"])
@pytest.mark.parametrize(
    ("address", "why"),
    [("https://10.0.0.7/x", "not at a public address"), ("http://192.0.2.1/x", "another host, without TLS")],
)
async def test_a_server_can_not_choose_an_address_of_a_private_network(
    world: World, name: str, address: str, why: str
) -> None:
    world.login.more_metadata = {name: address}
    async with world.worker() as agent:
        if name == "registration_endpoint":
            assert await world.find_link(agent) is None
        else:
            await world.answer(agent)
        assert why in (await agent.call("mcp.s.list_tools")).text


async def test_errors_show_no_text_of_the_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "LINK_AGAIN_S", 0.0)
    async with world.worker() as agent:
        for error in ("internal: the password is hunter2", "invalid_client_metadata", ["hunter2"]):
            body = {"error": error, "error_description": "the password is hunter2"}
            world.login.override["/register"] = answering(400, body)
            assert await world.find_link(agent) is None
            text = (await agent.call("mcp.s.list_tools")).text
            assert "it answered 400" in text and "hunter2" not in text
            assert ("invalid_client_metadata" in text) == (error == "invalid_client_metadata")
