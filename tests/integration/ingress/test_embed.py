"""Embedded chats over HTTP: who gets a ticket, which page it opens, and that it opens one chat."""

import time
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest

from everturn.bundles.embedding import EmbedConfig
from everturn.core.settings import BadConfig
from ingress.auth.signed_tokens import TokenSigner
from ingress.settings import load_config

SECRET = "a secret that is long enough for HS256"
SIGNER = TokenSigner(b"0123456789abcdef0123456789abcdef")
SHOP, ACME, HELP = "https://shop.example", "https://acme.example", "https://help.example:8443"
TICKETS = "/bundles/acme/one/default/embed-tickets"
CONFIG = f"""
[embed]
origins = ["{SHOP}"]
[embed.tenants.acme]
origins = ["{ACME}"]
[embed.bundles.other]
origins = ["{HELP}"]
"""


def bearer(user: str = "ann", seconds: float = 600, project: str = "one") -> dict[str, str]:
    claims = {"iss": "i", "aud": "a", "sub": user, "tenant": "acme", "project": project, "roles": ["registered"]}
    return {"Authorization": f"Bearer {jwt.encode(claims | {'exp': int(time.time() + seconds)}, SECRET, 'HS256')}"}


@pytest.fixture(scope="module")
def ingress(start_ingress: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("embed")
    (folder / "index.html").write_text('<script src="./assets/a.js"></script>')
    (folder / "everturn.toml").write_text(CONFIG)
    return start_ingress(
        EVERTURN_MODE="production",
        AUTH_ISSUER="i",
        AUTH_AUDIENCE="a",
        AUTH_SECRET=SECRET,
        GUEST_SCOPES="acme/one",
        WEB_DIST=str(folder),
        EVERTURN_CONFIG=str(folder / "everturn.toml"),
    )


async def ask(client: httpx2.AsyncClient, who: str = "ann", /, **body: Any) -> httpx2.Response:
    return await client.post(TICKETS, json={"origin": SHOP} | body, headers=bearer(who))


async def redeem(client: httpx2.AsyncClient, ticket: str, ancestors: tuple[str, ...] = ()) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {ticket}"}
    return await client.post("/embed/session", json={"ancestors": ancestors}, headers=headers)


async def find_user(client: httpx2.AsyncClient, answer: httpx2.Response) -> str:
    """Whom the session of a ticket acts for, by a conversation that only this user can read."""
    session = (await redeem(client, answer.json()["ticket"])).json()
    token = {"Authorization": f"Bearer {session['token']}"}
    listed = await client.get("/conversations/acme/one", headers=token)
    assert listed.status_code == 200
    record = SIGNER.try_read("evs_", session["token"])
    assert record is not None
    return str(record["user"])


async def test_a_ticket_opens_one_chat_for_a_guest_or_the_caller(client: httpx2.AsyncClient, refused: Any) -> None:
    made = await ask(client)
    assert made.status_code == 201
    ticket = made.json()["ticket"]
    assert made.json()["url"] == f"/embed/default?ticket={ticket}"

    opened = await redeem(client, ticket, (SHOP,))
    assert opened.status_code == 201
    session = opened.json()
    assert (session["tenant"], session["project"], session["bundle_id"]) == ("acme", "one", "default")
    refused(await redeem(client, ticket), 401)

    users = [await find_user(client, await ask(client, **body)) for body in ({}, {}, {"user": "caller"})]
    assert [user.startswith("guest~") for user in users] == [True, True, False]
    assert (users[0] != users[1], users[2]) == (True, "ann")
    named = [await find_user(client, await ask(client, user, visitor="c-17")) for user in ("ann", "ann", "bob")]
    assert named[0] == named[1] != named[2]


async def test_the_token_of_a_chat_ends_with_its_caller_and_is_no_ticket(
    client: httpx2.AsyncClient, refused: Any
) -> None:
    made = await client.post(TICKETS, json={"origin": SHOP, "user": "caller"}, headers=bearer(seconds=30))
    session = (await redeem(client, made.json()["ticket"])).json()

    record = SIGNER.try_read("evs_", session["token"])
    assert record is not None
    # The token of the caller is accepted a minute longer than it says.
    assert record["until"] <= time.time() + 30 + 60
    expired = SIGNER.build("evs_", record | {"until": time.time() - 1})
    for token in (expired, made.json()["ticket"], session["token"].replace("evs_", "evg_"), session["token"][:-1]):
        answer = await client.get("/conversations/acme/one", headers={"Authorization": f"Bearer {token}"})
        refused(answer, 401)
    foreign = {"Authorization": f"Bearer {session['token']}"}
    refused(await client.get("/conversations/acme/two", headers=foreign), 404)
    refused(await redeem(client, session["token"]), 401)


async def test_only_origins_of_the_tenant_or_bundle_get_tickets(client: httpx2.AsyncClient, refused: Any) -> None:
    assert (await ask(client, origin=ACME)).status_code == 201
    for origin in (HELP, "https://evil.example", "http://shop.example", "https://sub.shop.example"):
        assert refused(await ask(client, origin=origin), 403)["detail"] == (
            "Pages of this origin may not show this agent."
        )
    for origin in ("*", "null", "https://shop.example/path", "https://*.example", "javascript:1", ""):
        refused(await ask(client, origin=origin), 422)
    refused(await ask(client, user="caller", visitor="c-17"), 422)
    refused(await client.post(TICKETS.replace("default", "none"), json={"origin": SHOP}, headers=bearer()), 404)
    refused(await client.post(TICKETS, json={"origin": SHOP}), 401)


async def test_guests_get_no_tickets_and_a_project_without_guests_says_so(
    client: httpx2.AsyncClient, refused: Any
) -> None:
    guest = (await client.post("/guests/acme/one")).json()["token"]
    visitor = (await redeem(client, (await ask(client)).json()["ticket"])).json()["token"]
    for token, user in ((guest, "guest"), (visitor, "caller")):
        headers = {"Authorization": f"Bearer {token}"}
        answer = await client.post(TICKETS, json={"origin": SHOP, "user": user}, headers=headers)
        assert refused(answer, 403)["detail"] == "Guests can't create tickets."

    elsewhere = TICKETS.replace("/one/", "/two/")
    answer = await client.post(elsewhere, json={"origin": SHOP}, headers=bearer(project="two"))
    assert "GUEST_SCOPES" in refused(answer, 403)["detail"]
    as_caller = {"origin": SHOP, "user": "caller"}
    assert (await client.post(elsewhere, json=as_caller, headers=bearer(project="two"))).status_code == 201


async def test_the_page_can_be_framed_by_the_origin_of_its_ticket_alone(client: httpx2.AsyncClient) -> None:
    url = (await ask(client)).json()["url"]

    page = await client.get(url, headers={"Referer": f"{SHOP}/", "Sec-Fetch-Site": "cross-site"})

    assert page.status_code == 200
    assert page.text == '<script src="../assets/a.js"></script>'
    policy = dict(each.split(" ", 1) for each in page.headers["content-security-policy"].split("; "))
    assert (policy["frame-ancestors"], policy["script-src"]) == (SHOP, "'self'")
    assert page.headers["cache-control"] == "no-store"
    assert "set-cookie" not in page.headers
    assert (await redeem(client, url.partition("=")[2])).status_code == 201


async def test_pages_of_other_origins_are_refused_and_counted(client: httpx2.AsyncClient, refused: Any) -> None:
    ticket = (await ask(client)).json()["ticket"]
    url = f"/embed/default?ticket={ticket}"
    value = SIGNER.try_read("eve_", ticket)
    assert value is not None
    old = SIGNER.build("eve_", value | {"origin": "https://no-longer.example"})
    expired = SIGNER.build("eve_", value | {"expires": time.time() - 1})

    for address, referrer, status in (
        (url, "https://evil.example/x", 403),
        (url, "http://[", 403),
        (f"/embed/support?ticket={ticket}", SHOP, 403),
        (f"/embed/default?ticket={old}", "https://no-longer.example/", 403),
        (f"/embed/default?ticket={expired}", SHOP, 401),
        ("/embed/default", SHOP, 401),
    ):
        answer = await client.get(address, headers={"Referer": referrer})
        assert (answer.status_code, answer.headers["content-security-policy"]) == (
            status, "default-src 'none'; frame-ancestors 'none'",
        )  # fmt: skip
    refused(await redeem(client, ticket, (SHOP, "https://evil.example")), 403)
    refused(await redeem(client, old), 403)
    refused(await redeem(client, expired), 401)
    # The refusals have not used the ticket up.
    assert (await redeem(client, ticket, (SHOP,))).status_code == 201
    metrics = (await client.get("/metrics")).text
    for reason in ("origin", "ticket"):
        assert f'ingress_frame_refusals_total{{kind="embed",reason="{reason}"}}' in metrics


async def test_a_link_with_a_ticket_opens_no_chat(client: httpx2.AsyncClient) -> None:
    url = (await ask(client)).json()["url"]

    opened = await client.get(url, headers={"Sec-Fetch-Dest": "document"})
    framed = await client.get(url, headers={"Sec-Fetch-Dest": "iframe"})

    assert (opened.status_code, framed.status_code) == (403, 200)
    assert "in a frame of its page only" in opened.text


async def test_only_refusals_of_valid_tickets_are_logged(client: httpx2.AsyncClient, ingress: Any) -> None:
    url = (await ask(client)).json()["url"]
    before = len(ingress.log.read_text())

    answers = [await client.get(path) for path in ("/embed/stranger?ticket=eve_x.y", "/widgets/evw_x.y/stranger")]
    answers.append(await client.get(url.replace("/default?", "/stranger?")))

    assert [answer.status_code for answer in answers] == [401, 404, 403]
    logged = ingress.log.read_text()[before:]
    assert logged.count("Refused") == 1
    assert "stranger" not in logged


def test_a_bundle_has_origins_of_its_own() -> None:
    config = EmbedConfig.model_validate(tomllib.loads(CONFIG)["embed"])

    assert config.allows(HELP, tenant="acme", bundle_id="other")
    assert config.allows(SHOP, tenant="other", bundle_id="other")
    assert not config.allows(HELP, tenant="acme", bundle_id="default")
    assert not config.allows(ACME, tenant="other", bundle_id="other")


@pytest.mark.parametrize("text", ['[embed]\norigins = ["shop.example"]\n', "[embed]\norigin = 1\n"])
def test_a_wrong_origin_in_the_file_prevents_the_start(tmp_path: Path, text: str) -> None:
    file = tmp_path / "everturn.toml"
    file.write_text(text)
    with pytest.raises(BadConfig, match="embed"):
        load_config(file)
