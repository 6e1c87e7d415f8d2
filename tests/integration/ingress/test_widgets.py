"""Widgets over HTTP: who gets the address of one, what it opens, and with which headers."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import jwt
import pytest

from everturn.bundles.postgres import PostgresBundles
from everturn.bundles.registry import BundleListing, StoredBundle, WidgetListing
from everturn.postgres.pool import Database, open_database
from everturn_local.servers.databases import DatabaseUrls
from ingress.auth.signed_tokens import TokenSigner
from ingress.bundles import KEEP_S

SECRET = "a secret that is long enough for HS256"
BUNDLES = "/bundles/acme/one"
OLD, NEW = "a" * 64, "b" * 64
BOARD = WidgetListing("board", "Open tickets")
HELP = BundleListing("help", OLD, "Help", is_default=True, widgets=(WidgetListing("hint", "Hints"),))
GOLD = BundleListing("gold", OLD, "Gold", roles=("paid",), widgets=(BOARD,))
FILES = {
    "board/index.html": b"<title>Old</title>",
    "board/css/a.css": b"p{}",
    "board/data.bin": b"\0",
    "hint/a.js": b"1",
}


def bearer(*roles: str) -> dict[str, str]:
    claims = {"iss": "i", "aud": "a", "sub": "ann", "tenant": "acme", "project": "one", "roles": roles}
    return {"Authorization": f"Bearer {jwt.encode(claims | {'exp': int(time.time()) + 600}, SECRET, 'HS256')}"}


@pytest.fixture(scope="module")
def ingress(start_ingress: Any) -> Any:
    return start_ingress(AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET)


@pytest.fixture
async def registry(database: DatabaseUrls, worker_database: Database) -> AsyncIterator[PostgresBundles]:
    """Has published `help` and `gold`, with widgets."""
    registry = PostgresBundles(worker_database)
    async with open_database(database.superuser, pool_size=1, application_name="test-owner") as rows:
        async with rows.connection() as connection:
            await connection.execute("DELETE FROM bundle")
        await registry.store(StoredBundle("help", OLD, "{}", b"", {"hint/index.html": b"hint"}))
        await registry.store(StoredBundle("gold", OLD, "{}", b"secret source", FILES))
        await registry.publish([HELP, GOLD])
        await asyncio.sleep(1.2 * KEEP_S)
        yield registry
        async with rows.connection() as connection:
            await connection.execute("DELETE FROM bundle")


async def find_url(client: httpx2.AsyncClient, bundle: str, widget: str) -> str:
    answer = await client.get(f"{BUNDLES}/{bundle}/widgets/{widget}", headers=bearer("paid"))
    assert answer.status_code == 200
    return str(answer.json()["url"])


async def test_only_people_who_may_use_the_bundle_get_the_address(
    client: httpx2.AsyncClient, registry: PostgresBundles, refused: Any
) -> None:
    listed = (await client.get(BUNDLES, headers=bearer("paid"))).json()["bundles"]
    assert [bundle["widgets"] for bundle in listed] == [
        [{"name": "hint", "title": "Hints"}],
        [{"name": "board", "title": "Open tickets"}],
    ]

    for wanted in ("gold/widgets/board", "help/widgets/board", "none/widgets/board", "help/widgets/index.html"):
        refused(await client.get(f"{BUNDLES}/{wanted}", headers=bearer("registered")), 404)
    for bundle in ("default", "help"):
        page = await client.get(await find_url(client, bundle, "hint"))
        assert page.content == b"hint"


async def test_a_ticket_opens_the_files_of_its_widget_and_nothing_else(
    client: httpx2.AsyncClient, registry: PostgresBundles, refused: Any
) -> None:
    url = await find_url(client, "gold", "board")
    folder = url.removesuffix("index.html")
    assert url == await find_url(client, "gold", "board")

    page, style, data = [await client.get(folder + path) for path in ("", "css/a.css", "data.bin")]

    assert page.content == (await client.get(url)).content == b"<title>Old</title>"
    assert [each.headers["content-type"] for each in (page, style, data)] == [
        "text/html; charset=utf-8", "text/css; charset=utf-8", "application/octet-stream",
    ]  # fmt: skip
    for path in ("../hint/a.js", "%2e%2e/hint/a.js", "css", "a.css", "../../tools/desk.py", "index.html/"):
        refused(await client.get(httpx2.URL(folder + path)), 404)
    metrics = (await client.get("/metrics")).text
    assert 'ingress_frame_refusals_total{kind="widget",reason="file"}' in metrics


async def test_the_page_has_no_origin_no_network_and_is_framed_by_us_only(
    client: httpx2.AsyncClient, registry: PostgresBundles
) -> None:
    headers = (await client.get(await find_url(client, "gold", "board"))).headers

    policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
    assert (policy["sandbox"], policy["default-src"], policy["frame-ancestors"], policy["form-action"]) == (
        "allow-scripts", "'none'", "'self'", "'none'",
    )  # fmt: skip
    assert "connect-src" not in policy
    assert "http" not in headers["content-security-policy"]
    assert headers["connection-allowlist"] == "(response-origin)"
    assert (headers["cross-origin-resource-policy"], headers["access-control-allow-origin"]) == ("cross-origin", "*")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in headers
    cached = headers["cache-control"].split(", ")
    assert (cached[0], cached[2]) == ("private", "immutable")
    assert 3_500 < int(cached[1].removeprefix("max-age=")) <= 7_200


async def test_a_forged_or_expired_ticket_opens_nothing(
    client: httpx2.AsyncClient, registry: PostgresBundles, refused: Any
) -> None:
    signer = TokenSigner(b"0123456789abcdef0123456789abcdef")
    value = {"bundle": "gold", "digest": OLD, "widget": "board", "expires": time.time() + 60}
    assert (await client.get(f"/widgets/{signer.build('evw_', value)}/index.html")).status_code == 200

    expired = signer.build("evw_", value | {"expires": time.time() - 1})
    foreign = TokenSigner(b"another secret of enough bytes...").build("evw_", value)
    for ticket in (expired, foreign, signer.build("evg_", value), "evw_", "x"):
        refused(await client.get(f"/widgets/{ticket}/index.html"), 404)


async def test_an_address_keeps_its_version_and_new_ones_have_the_new_one(
    client: httpx2.AsyncClient, registry: PostgresBundles
) -> None:
    before = await find_url(client, "gold", "board")
    await registry.store(StoredBundle("gold", NEW, "{}", b"", {"board/index.html": b"new"}))
    await registry.publish([HELP, replace(GOLD, digest=NEW)])
    await asyncio.sleep(1.2 * KEEP_S)

    after = await find_url(client, "gold", "board")

    assert ((await client.get(before)).content, (await client.get(after)).content) == (b"<title>Old</title>", b"new")
