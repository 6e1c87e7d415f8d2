"""Bundles over HTTP: which are listed for whom."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx2
import jwt
import pytest

from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import BundleListing, StoredBundle
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls
from ingress.bundles import KEEP_S

SECRET = "a secret that is long enough for HS256"
LIST = "/bundles/acme/one"
HELP = BundleListing("help", "a" * 64, "Help", is_default=True)
DESK = BundleListing("desk", "a" * 64, "Desk", "Opens tickets.", "🎫", ("Open a ticket",))
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
                "is_default": True,
                "is_ready": True,
                "error": None,
            }
        ]
    }


async def test_people_see_what_they_may_use_and_operators_what_is_broken(
    client: httpx2.AsyncClient, publish: Publish
) -> None:
    await publish(DESK, GOLD, BROKEN, HELP)

    async def load(*roles: str) -> list[tuple[str, bool, str | None]]:
        listed = (await client.get(LIST, headers=bearer(*roles))).json()["bundles"]
        return [(bundle["id"], bundle["is_ready"], bundle["error"]) for bundle in listed]

    open_to_all = [("help", True, None), ("desk", True, None)]
    assert await load("registered") == open_to_all
    assert await load("paid") == [*open_to_all, ("gold", True, None)]
    assert await load("privileged") == [open_to_all[0], ("broken", False, BROKEN.error), open_to_all[1]]
    assert ("gold", True, GOLD.error) in await load("admin")
    desk = (await client.get(LIST, headers=bearer())).json()["bundles"][1]
    assert (desk["title"], desk["description"], desk["icon"], desk["starters"]) == (
        "Desk", "Opens tickets.", "🎫", ["Open a ticket"],
    )  # fmt: skip
