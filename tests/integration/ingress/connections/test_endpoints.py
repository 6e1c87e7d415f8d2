"""People's accounts at MCP servers over HTTP, and the page to which browsers return."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from helpers.questions import ask_a_person
from helpers.sockets import SocketClient

from everturn.core.identity import Principal
from everturn.core.ids import ApprovalId, ConversationId
from everturn.mcp_connections.connections import ConnectRequest, ServerKey, hash_state
from everturn.mcp_connections.postgres import PostgresConnections
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls

BASE, CALLBACK = "/mcp-connections/default/default", "/mcp-connections/callback/desk/mail"
CHAT = "/conversations/default/default"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
Refused = Callable[..., dict[str, Any]]
_numbers = count(1)


def as_user(name: str) -> dict[str, str]:
    return {"X-Dev-User": name}


class Links:
    """What workers do for people of the default project."""

    def __init__(self, store: PostgresConnections) -> None:
        self.store = store

    async def make(
        self, user: str, server: str = "mail", title: str = "Example Mail", *, asked_by: tuple[str, str] | None = None
    ) -> str:
        """The secret of a new link, for this conversation and approval if they exist."""
        number = next(_numbers)
        state, who = f"state-{number}", Principal("default", "default", user)
        ids = asked_by or (f"conv_{number}", f"appr_{number}")
        conversation, approval = ConversationId(ids[0]), ApprovalId(ids[1])
        request = ConnectRequest(approval, conversation, hash_state(state), title, b"sealed")
        await self.store.save_request(who, ServerKey("desk", server), request)
        return state

    async def claim(self, user: str, server: str = "mail") -> str | None:
        """The code of the person's answer, which is then connected."""
        who, key = Principal("default", "default", user), ServerKey("desk", server)
        answer = await self.store.claim_answer(who, key, accepts=bool, lease_s=20)
        if answer is None:
            return None
        assert await self.store.replace(who, key, answer.version, b"tokens")
        return answer.code


@pytest.fixture
async def links(database: DatabaseUrls) -> AsyncIterator[Links]:
    async with open_database(database.worker, pool_size=2, application_name="test-worker") as worker:
        yield Links(PostgresConnections(worker))


@pytest.fixture
def browser(client: httpx2.AsyncClient) -> Callable[..., Awaitable[httpx2.Response]]:
    """What a browser does that returns with these values: it opens the page, and presses its button."""

    async def follow(path: str = CALLBACK, /, **query: str) -> httpx2.Response:
        page = await client.get(path, params=query)
        if "<form" not in page.text:
            return page
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
        action = re.findall(r'action="(\w+)"', page.text)
        assert action == [path.rpartition("/")[2]], "the address of the next page would show the code"
        return await client.post(path, content=urlencode(fields), headers=FORM)

    return follow


Browser = Callable[..., Awaitable[httpx2.Response]]


async def list_titles(client: httpx2.AsyncClient, user: str) -> list[str]:
    return [each["title"] for each in (await client.get(BASE, headers=as_user(user))).json()["items"]]


async def test_a_person_lists_and_deletes_connections(
    client: httpx2.AsyncClient, links: Links, browser: Browser, refused: Refused
) -> None:
    for server in ("mail", "crm", "wiki"):
        state = await links.make("lists", server, f"Example {server}")
        done = await browser(f"/mcp-connections/callback/desk/{server}", state=state, code="code")
        assert (done.status_code, "Signed in" in done.text) == (200, True)
        assert await links.claim("lists", server) == "code"
    assert await list_titles(client, "lists") == ["Example wiki", "Example crm", "Example mail"]
    assert await list_titles(client, "another") == []

    mine = as_user("lists")
    refused(await client.delete(f"{BASE}/desk/mail", headers=as_user("another")), 404)
    assert (await client.delete(f"{BASE}/desk/mail", headers=mine)).json() == {"deleted": 1}
    refused(await client.delete(f"{BASE}/desk/mail", headers=mine), 404)
    assert (await client.delete(BASE, headers=mine)).json() == {"deleted": 2}
    assert await list_titles(client, "lists") == []


async def test_only_an_account_approves_a_call_that_needs_one(
    client: httpx2.AsyncClient,
    chat: Any,
    sockets: Callable[..., SocketClient],
    worker_database: Database,
    links: Links,
    browser: Browser,
    refused: Refused,
) -> None:
    sent = [await chat.send("read my mail") for _ in range(2)]
    asked = [(each["conversation_id"], await ask_a_person(worker_database, each)) for each in sent]
    state = await links.make("dev", asked_by=asked[0])
    yes = {"kind": "approve", "approval_id": asked[0][1]}

    problem = refused(await client.post(f"{CHAT}/{asked[0][0]}/signals", json=yes), 409)
    assert problem["detail"].endswith("Connect one at its connect_url, or deny it."), problem
    socket = await sockets().connect()
    over_socket = await socket.call("chat_signal", {"conversation_id": asked[0][0], **yes})
    assert (over_socket["status"], over_socket["body"]["detail"]) == (409, problem["detail"])
    (approval,) = (await chat.state(asked[0][0]))["turns"][0]["approvals"]
    assert approval["state"] == "pending"

    refused(await client.delete(f"{BASE}/desk/mail"), 404)
    done = await browser(state=state, code="code")
    assert (done.status_code, "Signed in" in done.text) == (200, True), "a disconnect ends the link of a waiting turn"
    (signal,) = (await chat.state(asked[0][0]))["turns"][0]["signals"]
    assert (signal["kind"], signal["approval_id"]) == ("approve", asked[0][1])

    assert await links.claim("dev") == "code"
    await links.make("dev", asked_by=asked[1])
    answer = {"kind": "approve", "approval_id": asked[1][1]}
    assert (await client.post(f"{CHAT}/{asked[1][0]}/signals", json=answer)).status_code == 202, "there is an account"
    message = await chat.send("read my mail")
    asked.append((message["conversation_id"], await ask_a_person(worker_database, message)))
    await links.make("dev", asked_by=asked[2])
    answer = {"kind": "approve", "approval_id": asked[2][1]}
    late = refused(await client.post(f"{CHAT}/{asked[2][0]}/signals", json=answer), 409)
    assert late["detail"] == problem["detail"], "the question asks for another account than the one before it"
    assert (await client.delete(f"{BASE}/desk/mail")).json() == {"deleted": 1}


async def test_the_page_asks_before_it_connects(client: httpx2.AsyncClient, links: Links) -> None:
    state = await links.make("ann <b>", title='Mail "&" more')
    for _ in range(2):
        page = await client.get(CALLBACK, params={"state": state, "code": 'c"><script>', "scope": "x", "iss": "i"})
        assert page.status_code == 200 and "<script" not in page.text
        assert "the user <b>ann &lt;b&gt;</b>" in page.text and "Mail &quot;&amp;&quot; more" in page.text
    assert await links.claim("ann <b>") is None
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert (page.headers["cache-control"], page.headers["referrer-policy"]) == ("no-store", "strict-origin")


async def test_a_link_works_once_and_at_its_server(client: httpx2.AsyncClient, links: Links, browser: Browser) -> None:
    state = await links.make("once")
    for path in ("/mcp-connections/callback/desk/crm", "/mcp-connections/callback/other/mail"):
        wrong = await browser(path, state=state, code="code")
        assert (wrong.status_code, "already used or is older" in wrong.text) == (401, True)
    for _ in range(2):
        assert (await browser(state=state, code="code")).status_code == 200
    again = await browser(state=state, code="another-code")
    posted = await client.post(CALLBACK, content=urlencode({"state": state, "code": "another-code"}), headers=FORM)
    assert [again.status_code, posted.status_code] == [401, 401]
    assert again.headers["content-type"].startswith("text/html")
    assert await links.claim("once") == "code"
    assert (await browser(state=state, code="code")).status_code == 200
    assert await links.claim("once") is None


@pytest.mark.parametrize("answer", [{"error": "access_denied"}, {"error": "x", "code": "code"}, {}, {"code": ""}])
async def test_who_refuses_connects_nothing(links: Links, browser: Browser, answer: dict[str, str]) -> None:
    user = f"refuses-{next(_numbers)}"
    state = await links.make(user)
    page = await browser(state=state, **answer)
    assert (page.status_code, "Not connected" in page.text) == (200, True)
    assert (await browser(state=state, code="code")).status_code == 401
    assert (await browser(state=state, **answer)).text == page.text
    assert await links.claim(user) is None


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"code": "code"},
        {"state": "", "code": "code"},
        {"state": "s" * 4_001, "code": "code"},
        {"state": "s", "code": "c" * 4_001},
        {"state": "s", "code": "c\0"},
        {"state": "s", "code": "c", "iss": "i\n"},
        {"state": "s", "code": "c", "iss": "i" * 4_001},
    ],
)
async def test_bad_answers_are_refused(client: httpx2.AsyncClient, refused: Refused, query: dict[str, str]) -> None:
    refused(await client.get(CALLBACK, params=query), 422)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"state=s", 400),
        (b"code=c", 400),
        (b"state=s&code=" + b"c" * 4_001, 400),
        (b"\xff\xfe", 400),
        (b"state=s&code=c%00", 400),
        (b"state=s&code=c%0a", 400),
        (b"state=s&code=%ff", 400),
        (b"&".join(b"a%d=b" % n for n in range(11)), 400),
        (b"state=s&code=c&more=" + b"x" * 20_000, 413),
    ],
)
async def test_bad_forms_are_refused(client: httpx2.AsyncClient, refused: Refused, body: bytes, status: int) -> None:
    refused(await client.post(CALLBACK, content=body, headers=FORM), status)


@pytest.mark.parametrize(
    "path", ["desk/Mail", "desk/a-b", f"desk/{'x' * 21}", f"{'x' * 129}/mail", "desk/mail%0a", "d%00/mail"]
)
async def test_bad_places_are_refused(client: httpx2.AsyncClient, refused: Refused, path: str) -> None:
    refused(await client.get(f"/mcp-connections/callback/{path}", params={"state": "s", "code": "c"}), 422)
    refused(await client.delete(f"{BASE}/{path}"), 422)
