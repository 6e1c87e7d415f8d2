"""The application as a whole: its OpenAPI document, and every route against strangers and fuzzed requests."""

import asyncio
import base64
import hashlib
import html
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import jwt
import pytest
from helpers.documented import Documented

from everturn.accounts.credentials import ApiKey
from everturn.accounts.postgres import PostgresCredentialAdmin
from everturn.core.identity import Principal
from everturn.postgres.pool import open_database
from everturn_local.servers.databases import DatabaseUrls
from ingress.auth.api_keys import build_key_text

SECRET = "a secret that is long enough for HS256"
PUBLIC = {"/healthz", "/readyz", "/metrics", "/guests/{tenant}/{project}"}
Refused = Callable[..., dict[str, Any]]
EXAMPLES, SEED = os.environ.get("FUZZ_EXAMPLES", "6"), os.environ.get("FUZZ_SEED", "1")
PHASES = os.environ.get("FUZZ_PHASES", "examples,fuzzing")
LIMIT_S = int(os.environ.get("FUZZ_LIMIT_S", "125"))
"""`make fuzz` asks for more."""


def bearer(user: str, **claims: Any) -> dict[str, str]:
    # Some are made when the tests are collected, and used when all the tests before have run.
    body = {"iss": "i", "aud": "a", "sub": user, "exp": int(time.time()) + 7_200}
    body |= {"tenant": "acme", "project": "one"} | claims
    return {"Authorization": f"Bearer {jwt.encode(body, SECRET, 'HS256')}"}


STRANGERS = {
    "another user": (bearer("bob", tenant="acme", project="one"), 404),
    "another tenant's user of the same name": (bearer("ann", tenant="other"), 404),
    "another project's user of the same name": (bearer("ann", tenant="acme", project="two"), 404),
    "nobody": ({}, 401),
    "a bad token": ({"Authorization": "Bearer x.y.z"}, 401),
    "an expired token": (bearer("ann", exp=int(time.time()) - 600), 401),
    "the development header": ({"X-Dev-User": "ann"}, 401),
    "somebody cut off": (bearer("dora", tenant="acme", project="one", iat=int(time.time()) - 60), 401),
}
"""Strangers that need something of the running server are made by `strangers`."""
LISTS_OWN = {
    ("GET", "/bundles/{tenant}/{project}"),
    ("GET", "/conversations/{tenant}/{project}"),
    ("POST", "/conversations/{tenant}/{project}"),
    ("POST", "/conversations/{tenant}/{project}/search"),
    ("POST", "/conversations/{tenant}/{project}/feedback/conversations-in-period"),
    ("GET", "/conversations/{tenant}/{project}/feedback/summary"),
    ("GET", "/limits/{tenant}/{project}"),
    ("GET", "/memory/{tenant}/{project}"),
    ("DELETE", "/memory/{tenant}/{project}"),
    ("GET", "/collections/{tenant}/{project}"),
    ("POST", "/collections/{tenant}/{project}"),
    ("GET", "/mcp-connections/{tenant}/{project}"),
    ("DELETE", "/mcp-connections/{tenant}/{project}"),
}
"""Routes without an id: another user gets an answer of its own, which a test below looks at."""
OWN_ANSWERS = ("another user", "a guest")
NEEDS_ADMIN = {
    ("GET", "/skills/{tenant}/{project}"),
    ("PUT", "/skills/{tenant}/{project}/{skill}"),
    ("GET", "/skills/{tenant}/{project}/{skill}"),
    ("DELETE", "/skills/{tenant}/{project}/{skill}"),
}
"""Routes that refuse everybody in the project without the role admin: see skills/test_endpoints.py."""

# One line for each route: its body, with the ids of what ann owns, or None. See docs/how-to/change-the-api.md.
NEEDS_A_WORKER = {
    ("GET", "/bundles/{tenant}/{project}/{bundle_id}/widgets/{name}"): 404,
    ("POST", "/bundles/{tenant}/{project}/{bundle_id}/embed-tickets"): 404,
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/fork"): 409,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}/steps/{step}"): 404,
    ("GET", "/bundles/{tenant}/{project}/{bundle_id}/operations"): 404,
    ("POST", "/bundles/{tenant}/{project}/{bundle_id}/operations/{name}"): 404,
    ("POST", "/collections/{tenant}/{project}/{collection_id}/documents"): 415,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace/diff"): 404,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace/file"): 404,
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/workspace.git/git-upload-pack"): 415,
    ("DELETE", "/mcp-connections/{tenant}/{project}/{bundle_id}/{server}"): 404,
}
"""What the owner gets without a worker: no turn has ended, and there is no step, which
`conversations/test_turns.py` reads, and no bundle, which `test_bundle_operations.py` has, and no connected account,
which `connections/test_endpoints.py` has, and no file of a workspace, which `history` has. And for an upload without
files, and a fetch of git without a body."""

BODIES: dict[tuple[str, str], Any] = {
    ("GET", "/bundles/{tenant}/{project}"): None,
    ("GET", "/bundles/{tenant}/{project}/{bundle_id}/operations"): None,
    ("POST", "/bundles/{tenant}/{project}/{bundle_id}/operations/{name}"): {},
    ("GET", "/bundles/{tenant}/{project}/{bundle_id}/widgets/{name}"): None,
    ("POST", "/bundles/{tenant}/{project}/{bundle_id}/embed-tickets"): {"origin": "https://shop.example"},
    ("GET", "/conversations/{tenant}/{project}"): None,
    ("POST", "/conversations/{tenant}/{project}"): {"title": "t"},
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}"): None,
    ("PATCH", "/conversations/{tenant}/{project}/{conversation_id}"): {"title": "stolen"},
    ("DELETE", "/conversations/{tenant}/{project}/{conversation_id}"): None,
    ("POST", "/conversations/{tenant}/{project}/fetch"): {"conversation_id": "{conversation_id}"},
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}/index"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}/steps/{step}"): None,
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/turns-with-feedbacks"): {},
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}/rounds/{number}/context"): None,
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}/feedback"): {"reaction": "ok"},
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/messages"): {"text": "mine now"},
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/signals"): {"kind": "cancel"},
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/signals/{signal_id}"): None,
    ("PATCH", "/conversations/{tenant}/{project}/{conversation_id}/signals/{signal_id}"): {"text": "mine now"},
    ("DELETE", "/conversations/{tenant}/{project}/{conversation_id}/signals/{signal_id}"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/events"): None,
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/ticket"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/export"): None,
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/fork"): {},
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace/commits"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace/tree"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace/diff"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace/file"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace.git/info/refs"): None,
    ("POST", "/conversations/{tenant}/{project}/{conversation_id}/workspace.git/git-upload-pack"): None,
    ("GET", "/files/{tenant}/{project}/{artifact_id}"): None,
    ("HEAD", "/files/{tenant}/{project}/{artifact_id}"): None,
    ("POST", "/by-rn"): {"rn": "{rn}"},
    ("POST", "/conversations/{tenant}/{project}/search"): {"query": "secret"},
    ("POST", "/conversations/{tenant}/{project}/feedback/conversations-in-period"): {
        "from": "2026-01-01T00:00:00Z",
        "to": "2027-01-01T00:00:00Z",
    },
    ("GET", "/conversations/{tenant}/{project}/feedback/summary"): None,
    ("GET", "/limits/{tenant}/{project}"): None,
    ("GET", "/memory/{tenant}/{project}"): None,
    ("DELETE", "/memory/{tenant}/{project}"): None,
    ("DELETE", "/memory/{tenant}/{project}/{memory_id}"): None,
    ("GET", "/collections/{tenant}/{project}"): None,
    ("POST", "/collections/{tenant}/{project}"): {"title": "t"},
    ("PATCH", "/collections/{tenant}/{project}/{collection_id}"): {"title": "secret"},
    ("DELETE", "/collections/{tenant}/{project}/{collection_id}"): None,
    ("GET", "/collections/{tenant}/{project}/{collection_id}/documents"): None,
    ("POST", "/collections/{tenant}/{project}/{collection_id}/documents"): None,
    ("DELETE", "/collections/{tenant}/{project}/{collection_id}/documents/{document_id}"): None,
    ("GET", "/mcp-connections/{tenant}/{project}"): None,
    ("DELETE", "/mcp-connections/{tenant}/{project}"): None,
    ("DELETE", "/mcp-connections/{tenant}/{project}/{bundle_id}/{server}"): None,
    **dict.fromkeys(NEEDS_ADMIN),
}
QUERIES = {("GET", "/conversations/{tenant}/{project}/{conversation_id}/workspace/file"): {"path": "secret"}}
"""The query parameters that a route needs."""


@dataclass(frozen=True)
class Owned:
    """What ann of acme/one owns."""

    http: httpx2.AsyncClient
    ids: dict[str, str]

    async def ask(self, route: tuple[str, str], headers: dict[str, str], **other: str) -> httpx2.Response:
        """`other` are ids in place of ann's."""
        method, template = route
        ids, body = self.ids | other, BODIES[route]
        filled = {name: value.format(**ids) for name, value in body.items()} if body else body
        kwargs = {} if body is None else {"json": filled}
        kwargs |= {"params": QUERIES[route]} if route in QUERIES else {}
        return await self.http.request(method, template.format(**ids), headers=headers, **kwargs)

    async def state(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        ann = bearer("ann", tenant="acme", project="one")
        fetched = await self.http.post(
            "/conversations/acme/one/fetch", json={"conversation_id": self.ids["conversation_id"]}, headers=ann
        )
        listed = await self.http.get("/conversations/acme/one", headers=ann)
        return fetched.json(), listed.json()["items"]


@pytest.fixture(scope="module")
def production(start_ingress: Any) -> Any:
    return start_ingress(
        {"bad_credentials": None, "reauthorize_s": 1, "heartbeat_s": 0.2, "message_files": 3},
        EVERTURN_MODE="production",
        AUTH_ISSUER="i",
        AUTH_AUDIENCE="a",
        AUTH_SECRET=SECRET,
        GUEST_SCOPES="acme/one",
        RATE_LIMITS_WRITES="off",
    )


@pytest.fixture
async def admin(database: DatabaseUrls) -> AsyncIterator[PostgresCredentialAdmin]:
    async with open_database(database.owner, pool_size=1, application_name="test-operator") as owner:
        yield PostgresCredentialAdmin(owner)


async def make_key(admin: PostgresCredentialAdmin, user: str) -> tuple[str, dict[str, str]]:
    """A key of a user of acme/one: its id, and the header."""
    text, made = build_key_text()
    owner = Principal("acme", "one", user)
    await admin.save_key(ApiKey(made.key_id, made.secret_hash, owner, "", datetime.now(UTC)))
    return made.key_id, {"Authorization": f"Bearer {text}"}


@pytest.fixture
async def strangers(production: Any, admin: PostgresCredentialAdmin) -> dict[str, tuple[dict[str, str], int]]:
    key_id, revoked = await make_key(admin, "ann")
    await admin.revoke_key(key_id)
    await admin.save_cutoff("dora", tenant="acme")
    async with httpx2.AsyncClient(base_url=production.url) as http:
        guest = (await http.post("/guests/acme/one")).json()["token"]
    made = {"a revoked key of ann's": (revoked, 401), "a guest": ({"Authorization": f"Bearer {guest}"}, 404)}
    return STRANGERS | made


@pytest.fixture
async def owned(production: Any, ingress: Any, remember: Any, keep_context: Any) -> AsyncIterator[Owned]:
    async with httpx2.AsyncClient(base_url=production.url, timeout=20) as http:
        # The file comes in over the development ingress, because production takes none without an antivirus.
        attachment = {"filename": "a.csv", "data_base64": base64.b64encode(b"secret,1\n").decode()}
        async with httpx2.AsyncClient(base_url=ingress.url) as local:
            sent = await local.post(
                "/conversations/acme/one/new/messages",
                json={"text": "secret", "attachments": [attachment]},
                headers={"X-Dev-User": "ann"},
            )
            shelf = "/collections/acme/one"
            kept = (await local.post(shelf, json={"title": "secret"}, headers={"X-Dev-User": "ann"})).json()["id"]
            added = await local.post(
                f"{shelf}/{kept}/documents",
                files=[("files", ("secret.txt", b"secret", "text/plain"))],
                headers={"X-Dev-User": "ann"},
            )
        ids = {"tenant": "acme", "project": "one", **sent.json(), "collection_id": kept}
        ids["document_id"] = added.json()["documents"][0]["id"]
        ann = bearer("ann", tenant="acme", project="one")
        signal = await http.post(
            f"/conversations/acme/one/{ids['conversation_id']}/signals",
            json={"kind": "steer", "text": "x"},
            headers=ann,
        )
        ids["signal_id"] = signal.json()["signal_id"]
        turn = await http.get(f"/conversations/acme/one/{ids['conversation_id']}/turns/{ids['turn_id']}", headers=ann)
        ids["number"] = "1"
        ids["step"] = "call_1"
        ids |= {"bundle_id": "desk", "name": "list_tickets", "server": "mail"}
        await keep_context(ids["conversation_id"], ids["turn_id"])
        ids["skill"] = "refunds"
        ids["memory_id"] = await remember("ann", "The secret is 42.", tenant="acme", project="one")
        ids["artifact_id"] = turn.json()["attachments"][0]["artifact_id"]
        ids["rn"] = turn.json()["attachments"][0]["rn"]
        yield Owned(http, ids)


async def test_every_route_has_a_case_for_strangers(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()

    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    heads: set[tuple[str, str]] = set()
    async with httpx2.AsyncClient(base_url=client.base_url, timeout=20) as http:
        # The document leaves HEAD out, so the server is asked where it is served.
        for path in {path for method, path in routes if method == "GET"}:
            if (await http.head(re.sub(r"\{\w+\}", "1", path))).status_code != 405:
                heads.add(("HEAD", path))

    assert {route for route in routes | heads if route[1] not in PUBLIC} == set(BODIES)


@pytest.mark.parametrize("stranger", [*sorted(STRANGERS), "a revoked key of ann's", "a guest"])
async def test_a_stranger_gets_nothing_from_any_route_and_changes_nothing(
    owned: Owned, refused: Refused, strangers: dict[str, tuple[dict[str, str], int]], stranger: str
) -> None:
    headers, status = strangers[stranger]
    before = await owned.state()

    answers: dict[tuple[str, str], httpx2.Response] = {}
    for route in BODIES:
        if route in LISTS_OWN | NEEDS_ADMIN and stranger in OWN_ANSWERS:
            continue
        answers[route] = await owned.ask(route, headers)

    for route, answer in answers.items():
        assert answer.status_code == status, route
        assert "secret" not in str(answer.headers)
        if route[0] == "HEAD":
            assert answer.content == b""
            continue
        body = refused(answer, status)
        assert "secret" not in str(body)
    assert len({answer.text for route, answer in answers.items() if route[0] != "HEAD"}) <= 2
    assert await owned.state() == before


async def test_an_id_of_anothers_is_absent_also_beside_ids_of_ones_own(owned: Owned, refused: Refused) -> None:
    bob = bearer("bob2", tenant="acme", project="one")
    own = (await owned.http.post("/conversations/acme/one/new/messages", json={"text": "b"}, headers=bob)).json()
    before = await owned.state()

    for route in BODIES:
        if "{conversation_id}" in route[1] and route[1].count("_id}") > 1:
            refused(await owned.ask(route, bob, conversation_id=own["conversation_id"]), 404)

    assert await owned.state() == before


async def test_a_key_opens_a_stream_and_its_revocation_ends_it(
    owned: Owned, refused: Refused, admin: PostgresCredentialAdmin
) -> None:
    key_id, key = await make_key(admin, "ann")
    events = f"/conversations/acme/one/{owned.ids['conversation_id']}/events"
    ticket = (await owned.http.post(events.replace("/events", "/ticket"), headers=key)).json()["ticket"]

    async with asyncio.timeout(50), owned.http.stream("GET", f"{events}?ticket={ticket}") as response:
        assert response.status_code == 200
        lines = response.aiter_lines()
        assert await anext(lines) == "event: ready"
        await admin.revoke_key(key_id)
        rest = [line async for line in lines]

    assert [line for line in rest if line][-1].startswith(": unauthorized")
    refused(await owned.http.get(f"{events}?ticket={ticket}"), 401)
    refused(await owned.http.get(events, headers=key), 401)


async def test_another_user_lists_and_makes_only_its_own(owned: Owned) -> None:
    bob = bearer("bob", tenant="acme", project="one")
    _, before = await owned.state()

    made = await owned.http.post("/conversations/acme/one", json={"title": "bob's"}, headers=bob)
    listed = (await owned.http.get("/conversations/acme/one", headers=bob)).json()["items"]

    assert [item["conversation_id"] for item in listed if item["title"] != "bob's"] == []
    assert made.json()["conversation_id"] in [item["conversation_id"] for item in listed]
    assert (await owned.state())[1] == before


async def test_the_owner_gets_an_answer_from_every_route(owned: Owned) -> None:
    ann = bearer("ann", tenant="acme", project="one")
    order = sorted(BODIES, key=lambda route: (route[0] == "DELETE", -len(route[1]), route[1]))

    for route in order:
        if route[1].endswith("/events"):
            url = route[1].format(**owned.ids)
            async with owned.http.stream("GET", url, headers=ann) as response:
                assert response.status_code == 200
            continue
        answer = await owned.ask(route, ann)
        expected = 403 if route in NEEDS_ADMIN else NEEDS_A_WORKER.get(route)
        assert answer.status_code < 300 or answer.status_code == expected, (route, answer.text)


async def test_operations_have_short_names_for_generated_clients(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()

    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]

    assert "post_message" in names
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 40


async def test_the_document_is_openapi_31_with_problems_and_examples(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()

    assert document["openapi"].startswith("3.1")
    assert "Problem" in document["components"]["schemas"]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["summary"]
            if path not in PUBLIC:
                problem = operation["responses"]["404"]["content"]["application/problem+json"]
                assert problem["schema"] == {"$ref": "#/components/schemas/Problem"}, (method, path)
    message = document["paths"]["/conversations/{tenant}/{project}/{conversation_id}/messages"]["post"]
    assert set(message["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    signal = document["paths"]["/conversations/{tenant}/{project}/{conversation_id}/signals"]["post"]
    assert {"steer", "approve", "deny"} <= set(signal["requestBody"]["content"]["application/json"]["examples"])
    assert "HTTPValidationError" not in str(document)


async def test_every_field_has_a_description_on_the_documentation_page(
    client: httpx2.AsyncClient,
) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    page = await client.get("/docs")

    fields = [(name, field, about) for name, it in schemas.items() for field, about in it.get("properties", {}).items()]
    assert [f"{name}.{field}" for name, field, about in fields if not about.get("description")] == []
    rows = re.findall(r"<tr><td><code>(.*?)</code><td>.*?<td>(.*?)(?=<tr>|</table>)", page.text)
    shown = {(field, re.sub("<[^>]+>", "", text)) for field, text in rows}
    for name, field, about in fields:
        text = html.escape(about["description"].replace("`", ""))
        assert any(field == other and message.startswith(text) for other, message in shown), (name, field)
    assert all(f'id="{name}"' in page.text for name in ("AcceptedOut", "ChatDelta", "StreamGap"))
    assert "`" not in page.text


async def test_the_page_of_the_document_loads_nothing(client: httpx2.AsyncClient) -> None:
    page = await client.get("/docs")

    policy = page.headers["content-security-policy"]
    style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in policy
    assert not re.search(r"<script|<link|<img|\bsrc=|\bstyle=|https?:", page.text)


async def test_the_document_says_how_many_files_the_settings_allow(production: Any) -> None:
    async with httpx2.AsyncClient(base_url=production.url, timeout=20) as http:
        document = (await http.get("/openapi.json")).json()

    for end in ("messages", "signals"):
        operation = document["paths"][f"/conversations/{{tenant}}/{{project}}/{{conversation_id}}/{end}"]["post"]
        form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert form["properties"]["files"]["maxItems"] == 3


@pytest.mark.parametrize("path", ["/nothing", "/", "/socket.io", "/conversations/default/default"])
async def test_an_upgrade_to_a_websocket_elsewhere_is_a_problem(
    client: httpx2.AsyncClient, refused: Refused, path: str
) -> None:
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    }

    refused(await client.get(path, headers=handshake), 404)


async def test_absent_routes_and_methods_are_problems(client: httpx2.AsyncClient, refused: Refused) -> None:
    refused(await client.get("/nothing"), 404)
    refused(await client.delete("/healthz"), 405)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "1.2.3.4"},
    ],
)
async def test_development_mode_answers_no_web_page_and_no_proxy(
    client: httpx2.AsyncClient, refused: Refused, headers: dict[str, str]
) -> None:
    refused(await client.get("/conversations/default/default", headers=headers), 403)
    refused(await client.post("/conversations/default/default/new/messages", content="text=a", headers=headers), 403)


async def test_every_json_body_has_an_example_that_fits_its_schema(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()

    for path, item in document["paths"].items():
        for method, operation in item.items():
            answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
            for body in (operation.get("requestBody", {}), *answers):
                content = body.get("content", {}).get("application/json")
                if content is None:
                    continue
                schema = {**content["schema"], "components": document["components"]}
                validator = jsonschema_rs.validator_for(schema)
                shown = [each["value"] for each in content.get("examples", {}).values()] or [content["example"]]
                wrong = [str(error) for example in shown for error in validator.iter_errors(example)]
                assert not wrong, (method, path, wrong)


async def test_an_undocumented_status_is_detected(documented: Documented) -> None:
    list_path, read_path = "/conversations/a/b", "/conversations/a/b/conv_1"

    documented.check("POST", list_path, 201)
    documented.check("POST", f"{list_path}/fetch", 200)
    documented.check("HEAD", "/files/a/b/art_1", 206)
    documented.check("GET", "/nothing", 404)
    documented.check("DELETE", "/healthz", 405)
    for method, path, status in (
        ("GET", "/nothing", 200),
        ("DELETE", "/healthz", 200),
        ("HEAD", "/files/a/b/art_1", 201),
        ("POST", list_path, 202),
        ("GET", read_path, 418),
        ("POST", f"{list_path}/fetch", 201),
    ):
        with pytest.raises(AssertionError, match=f"answered {status}"):
            documented.check(method, path, status)


@pytest.mark.timeout(LIMIT_S)
def test_fuzzed_requests_find_no_server_error_and_no_undocumented_answer(ingress: Any, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        *("run", f"{ingress.url}/openapi.json", f"--max-examples={EXAMPLES}", f"--seed={SEED}", "--workers=1"),
        *(f"--phases={PHASES}", "--request-timeout=5", "--suppress-health-check=all"),
        "--checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        # It can't write a request of git, which history/test_clones.py does.
        "--exclude-path-regex=/events$|/git-upload-pack$",
    ]

    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S - 5, cwd=tmp_path, check=False)

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert ingress.alive()
