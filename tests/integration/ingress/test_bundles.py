"""Bundles over HTTP and sockets: which are listed for whom, and the refusal of others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx2
import jwt
import pytest
from helpers.sockets import SocketClient

from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import BundleListing, StoredBundle
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls
from ingress.bundles import KEEP_S

SECRET = "a secret that is long enough for HS256"
SCOPE = {"tenant": "acme", "project": "one"}
LIST, CHAT = "/bundles/acme/one", "/conversations/acme/one"
HELP = BundleListing("help", "a" * 64, "Help", is_default=True)
PROBLEMS = ("mcp.crm: The server does not answer.",)
DESK = BundleListing("desk", "a" * 64, "Desk", "Opens tickets.", "🎫", ("Open a ticket",), problems=PROBLEMS)
HIDDEN = BundleListing("default", "", "default", is_ready=False, error="The id default means the default bundle.")
GOLD = BundleListing("gold", "a" * 64, "gold", roles=("paid", "admin"), error="bundle.toml, line 2: Wrong.")
BROKEN = BundleListing("broken", "", "broken", is_ready=False, error="bundle.toml, line 1: Wrong.")
Publish = Callable[..., Coroutine[Any, Any, None]]


def bearer(*roles: str, user: str = "ann") -> dict[str, str]:
    claims = {"iss": "i", "aud": "a", "sub": user, "tenant": "acme", "project": "one", "roles": roles}
    return {"Authorization": f"Bearer {jwt.encode(claims | {'exp': int(time.time()) + 600}, SECRET, 'HS256')}"}


@pytest.fixture(scope="module")
def ingress(start_ingress: Any) -> Any:
    return start_ingress(AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET)


@pytest.fixture
async def publish(database: DatabaseUrls, worker_database: Database) -> AsyncIterator[Publish]:
    """Publish these bundles instead of all others, as a worker does; the ingress has not looked at them yet."""
    registry = PostgresBundles(worker_database)

    async def publish(*listings: BundleListing) -> None:
        async with rows.connection() as connection:
            await connection.execute("DELETE FROM bundle")
        for listing in listings:
            if listing.is_ready:
                await registry.store(StoredBundle(listing.id, listing.digest, "{}", b""))
        await registry.publish(listings)
        await asyncio.sleep(1.2 * KEEP_S)

    async with open_database(database.superuser, pool_size=1, application_name="test-owner") as rows:
        yield publish
        async with rows.connection() as connection:
            await connection.execute("DELETE FROM bundle")


async def test_the_built_in_agent_is_listed_before_any_worker_has_run(client: httpx2.AsyncClient) -> None:
    listed = (await client.get(LIST, headers=bearer())).json()

    assert listed == {
        "bundles": [
            {
                "id": "default",
                "title": "Everturn",
                "description": "",
                "icon": "",
                "starters": [],
                "widgets": [],
                "is_default": True,
                "is_ready": True,
                "error": None,
                "problems": [],
            }
        ]
    }


async def test_people_see_what_they_may_use_and_operators_what_is_broken(
    client: httpx2.AsyncClient, publish: Publish
) -> None:
    await publish(DESK, GOLD, BROKEN, HELP, HIDDEN)

    async def load(*roles: str) -> list[tuple[str, bool, str | None]]:
        listed = (await client.get(LIST, headers=bearer(*roles))).json()["bundles"]
        return [(bundle["id"], bundle["is_ready"], bundle["error"]) for bundle in listed]

    open_to_all = [("help", True, None), ("desk", True, None)]
    assert await load("registered") == open_to_all
    assert await load("paid") == [*open_to_all, ("gold", True, None)]
    assert await load("privileged") == [
        open_to_all[0],
        ("broken", False, BROKEN.error),
        ("default", False, HIDDEN.error),
        open_to_all[1],
    ]
    assert ("gold", True, GOLD.error) in await load("admin")
    desk = (await client.get(LIST, headers=bearer())).json()["bundles"][1]
    assert (desk["title"], desk["description"], desk["icon"], desk["starters"]) == (
        "Desk", "Opens tickets.", "🎫", ["Open a ticket"],
    )  # fmt: skip
    seen = (await client.get(LIST, headers=bearer("admin"))).json()["bundles"]
    problems = {bundle["id"]: bundle["problems"] for bundle in seen}
    assert (problems["desk"], problems["help"], desk["problems"]) == ([*PROBLEMS], [], [])


async def test_a_bundle_that_a_person_cannot_use_is_the_same_problem_everywhere(
    client: httpx2.AsyncClient, sockets: Any, ingress: Any, publish: Publish, refused: Any
) -> None:
    await publish(HELP, DESK, GOLD, BROKEN)
    socket: SocketClient = await sockets(ingress.url).connect(**SCOPE, token=bearer()["Authorization"][7:])

    for bundle in ("typo", "gold", "broken"):
        message = await client.post(f"{CHAT}/new/messages", json={"text": "a", "bundle_id": bundle}, headers=bearer())
        made = await client.post(CHAT, json={"bundle_id": bundle}, headers=bearer())
        call = await socket.call("chat_message", {"conversation_id": "new", "text": "a", "bundle_id": bundle})
        assert call["status"] == 422
        for problem in (refused(message, 422), refused(made, 422), call["body"]):
            assert problem["type"] == "urn:everturn:problem:unknown-bundle"
            assert problem["errors"] == [{"field": "body.bundle_id", "message": "must be one of default, desk, help"}]
    for bundle in ("default", "desk", "help", None):
        message = await client.post(f"{CHAT}/new/messages", json={"text": "a", "bundle_id": bundle}, headers=bearer())
        made = await client.post(CHAT, json={"bundle_id": bundle}, headers=bearer())
        call = await socket.call("chat_message", {"conversation_id": "new", "text": "a", "bundle_id": bundle})
        assert (message.status_code, made.status_code, call["status"]) == (202, 201, 202)
        assert made.json()["bundle_id"] == bundle


async def test_a_conversation_shows_its_bundle_and_needs_another_once_it_is_gone(
    client: httpx2.AsyncClient, publish: Publish, refused: Any
) -> None:
    await publish(HELP, DESK)
    made = (await client.post(CHAT, json={"bundle_id": "desk"}, headers=bearer())).json()
    path = f"{CHAT}/{made['conversation_id']}"
    fetched = await client.post(f"{CHAT}/fetch", json={"conversation_id": made["conversation_id"]}, headers=bearer())
    listed = (await client.get(CHAT, headers=bearer())).json()["items"]
    async with client.stream("GET", f"{path}/events", headers=bearer()) as stream:
        snapshot = await anext(
            json.loads(line.removeprefix("data: "))
            async for line in stream.aiter_lines()
            if '"stream.snapshot"' in line
        )
    await publish(HELP)

    event = {"kind": "event", "text": "x", "event": {"kind": "form"}}
    for end, body in (("messages", {"text": "a"}), ("signals", event)):
        problem = refused(await client.post(f"{path}/{end}", json=body, headers=bearer()), 422)
        assert problem["type"] == "urn:everturn:problem:unknown-bundle"
        assert problem["errors"] == [{"field": "body.bundle_id", "message": "must be one of default, help"}]
    other = await client.post(f"{path}/messages", json={"text": "a", "bundle_id": "help"}, headers=bearer())

    assert other.status_code == 202
    assert made["bundle_id"] == "desk"
    assert fetched.json()["conversation"]["bundle_id"] == "desk"
    assert {item["conversation_id"]: item["bundle_id"] for item in listed}[made["conversation_id"]] == "desk"
    assert snapshot["data"]["state"]["conversation"]["bundle_id"] == "desk"
    assert (await client.get(path, headers=bearer())).json()["bundle_id"] == "desk"
