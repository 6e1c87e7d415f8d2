"""The application as a whole: its OpenAPI document, and every route against strangers and fuzzed requests."""

import base64
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest

SECRET = "a secret that is long enough for HS256"
PUBLIC = {"/healthz", "/readyz", "/metrics", "/guests/{tenant}/{project}"}
Refused = Callable[..., dict[str, Any]]


def bearer(user: str, **claims: Any) -> dict[str, str]:
    body = {"iss": "i", "aud": "a", "sub": user, "exp": int(time.time()) + 600} | claims
    return {"Authorization": f"Bearer {jwt.encode(body, SECRET, 'HS256')}"}


STRANGERS = {
    "another user": (bearer("bob", tenant="acme", project="one"), 404),
    "another tenant's user of the same name": (bearer("ann", tenant="other"), 404),
    "another project's user of the same name": (bearer("ann", tenant="acme", project="two"), 404),
    "nobody": ({}, 401),
    "a bad token": ({"Authorization": "Bearer x.y.z"}, 401),
    "an expired token": (bearer("ann", exp=int(time.time()) - 600), 401),
    "the development header": ({"X-Dev-User": "ann"}, 401),
}
LISTS_OWN = {
    ("GET", "/conversations/{tenant}/{project}"),
    ("POST", "/conversations/{tenant}/{project}"),
    ("POST", "/conversations/{tenant}/{project}/search"),
    ("POST", "/conversations/{tenant}/{project}/feedback/conversations-in-period"),
    ("GET", "/conversations/{tenant}/{project}/feedback/summary"),
    ("GET", "/memory/{tenant}/{project}"),
    ("DELETE", "/memory/{tenant}/{project}"),
}
"""Routes without an id: another user gets an answer of its own, which a test below looks at."""

BODIES: dict[tuple[str, str], Any] = {
    ("GET", "/conversations/{tenant}/{project}"): None,
    ("POST", "/conversations/{tenant}/{project}"): {"title": "t"},
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}"): None,
    ("PATCH", "/conversations/{tenant}/{project}/{conversation_id}"): {"title": "stolen"},
    ("DELETE", "/conversations/{tenant}/{project}/{conversation_id}"): None,
    ("POST", "/conversations/{tenant}/{project}/fetch"): {"conversation_id": "{conversation_id}"},
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}"): None,
    ("GET", "/conversations/{tenant}/{project}/{conversation_id}/turns/{turn_id}/index"): None,
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
    ("GET", "/files/{tenant}/{project}/{artifact_id}"): None,
    ("POST", "/conversations/{tenant}/{project}/search"): {"query": "secret"},
    ("POST", "/conversations/{tenant}/{project}/feedback/conversations-in-period"): {
        "from": "2026-01-01T00:00:00Z",
        "to": "2027-01-01T00:00:00Z",
    },
    ("GET", "/conversations/{tenant}/{project}/feedback/summary"): None,
    ("GET", "/memory/{tenant}/{project}"): None,
    ("DELETE", "/memory/{tenant}/{project}"): None,
    ("DELETE", "/memory/{tenant}/{project}/{memory_id}"): None,
}


@dataclass(frozen=True)
class Owned:
    """What ann of acme/one owns."""

    http: httpx2.AsyncClient
    ids: dict[str, str]

    async def ask(self, route: tuple[str, str], headers: dict[str, str]) -> httpx2.Response:
        method, template = route
        body = BODIES[route]
        filled = {name: value.format(**self.ids) for name, value in body.items()} if body else body
        kwargs = {} if body is None else {"json": filled}
        return await self.http.request(method, template.format(**self.ids), headers=headers, **kwargs)

    async def state(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        ann = bearer("ann", tenant="acme", project="one")
        fetched = await self.http.post(
            "/conversations/acme/one/fetch", json={"conversation_id": self.ids["conversation_id"]}, headers=ann
        )
        listed = await self.http.get("/conversations/acme/one", headers=ann)
        return fetched.json(), listed.json()["items"]


@pytest.fixture(scope="module")
def production(start_ingress: Any) -> Any:
    return start_ingress(EVERTURN_MODE="production", AUTH_ISSUER="i", AUTH_AUDIENCE="a", AUTH_SECRET=SECRET)


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
        ids = {"tenant": "acme", "project": "one", **sent.json()}
        ann = bearer("ann", tenant="acme", project="one")
        signal = await http.post(
            f"/conversations/acme/one/{ids['conversation_id']}/signals",
            json={"kind": "steer", "text": "x"},
            headers=ann,
        )
        ids["signal_id"] = signal.json()["signal_id"]
        turn = await http.get(f"/conversations/acme/one/{ids['conversation_id']}/turns/{ids['turn_id']}", headers=ann)
        ids["number"] = "1"
        await keep_context(ids["conversation_id"], ids["turn_id"])
        ids["memory_id"] = await remember("ann", "The secret is 42.", tenant="acme", project="one")
        ids["artifact_id"] = turn.json()["attachments"][0]["artifact_id"]
        yield Owned(http, ids)


async def test_every_route_has_a_case_for_strangers(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()

    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}

    assert {route for route in routes if route[1] not in PUBLIC} == set(BODIES)


@pytest.mark.parametrize("stranger", sorted(STRANGERS))
async def test_a_stranger_gets_nothing_from_any_route_and_changes_nothing(
    owned: Owned, refused: Refused, stranger: str
) -> None:
    headers, status = STRANGERS[stranger]
    before = await owned.state()

    answers: dict[tuple[str, str], httpx2.Response] = {}
    for route in BODIES:
        if route in LISTS_OWN and stranger == "another user":
            continue
        answers[route] = await owned.ask(route, headers)

    for route, answer in answers.items():
        assert answer.status_code == status, route
        body = refused(answer, status)
        assert "secret" not in str(body)
    assert len({answer.text for answer in answers.values()}) <= 2
    assert await owned.state() == before


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
        assert answer.status_code < 300, (route, answer.text)


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
    assert message["requestBody"]["content"]["application/json"]["example"]
    assert "HTTPValidationError" not in str(document)
    page = await client.get("/", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/docs")
    assert "/conversations/{tenant}/{project}" in page.text


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


def test_fuzzed_requests_find_no_server_error_and_no_undocumented_answer(ingress: Any, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        *("run", f"{ingress.url}/openapi.json", "--max-examples=15", "--seed=1", "--workers=1"),
        *("--phases=examples,coverage,fuzzing", "--request-timeout=5", "--suppress-health-check=all"),
        "--checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--exclude-path-regex=/events$",
    ]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert ingress.alive()
