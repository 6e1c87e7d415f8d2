"""Two ingress processes share the buckets of a principal, refuse before the body arrives, and limit guessing."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jwt
import pytest

BASE = "/conversations/default/default"
LIMITS = {
    "RATE_LIMITS_WRITES": "registered=5/h",
    "AUTH_SECRET": "s" * 32,
    "AUTH_ISSUER": "i",
    "AUTH_AUDIENCE": "a",
}
GUESSING = {"bad_credentials": [3, 3600]}
Refused = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def limited(start_ingress: Callable[..., Any]) -> Any:
    return start_ingress(GUESSING, **LIMITS)


@pytest.fixture(scope="module")
def second_process(start_ingress: Callable[..., Any]) -> Any:
    return start_ingress(GUESSING, **LIMITS)


async def test_a_principal_has_one_bucket_in_all_processes(limited: Any, second_process: Any, refused: Refused) -> None:
    async with httpx2.AsyncClient(timeout=20, headers={"X-Dev-User": "ann"}) as http:
        answers = [await http.post(f"{(limited, second_process)[n % 2].url}{BASE}", json={}) for n in range(7)]

    assert [answer.status_code for answer in answers] == [201] * 5 + [429] * 2
    assert answers[0].headers["ratelimit-policy"] == '"writes";q=5;w=3600'
    assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == ["r=4", "r=3", "r=2", "r=1"] + [
        "r=0"
    ] * 3
    refused(answers[5], 429)
    waits = [int(answer.headers["retry-after"]) for answer in answers[5:]]
    assert 600 <= waits[0] <= 720 < waits[1] <= 1440


async def test_reads_and_other_users_are_not_limited(limited: Any) -> None:
    async with httpx2.AsyncClient(base_url=limited.url, timeout=20, headers={"X-Dev-User": "ben"}) as http:
        for _ in range(6):
            last = await http.post(BASE, json={})

        read = await http.get(BASE)
        other = await http.post(BASE, json={}, headers={"X-Dev-User": "cat"})

    assert (last.status_code, read.status_code, other.status_code) == (429, 200, 201)


async def test_a_limited_call_is_refused_before_its_body_arrives(limited: Any) -> None:
    parts = urlsplit(limited.url)
    head = f"POST {BASE}/new/messages HTTP/1.1\r\nHost: localhost\r\nX-Dev-User: dan\r\n"
    async with asyncio.timeout(20):
        async with httpx2.AsyncClient(base_url=limited.url, timeout=20, headers={"X-Dev-User": "dan"}) as http:
            for _ in range(5):
                await http.post(BASE, json={})
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n".encode())
        status = await reader.readline()
        writer.close()

    assert b"429" in status


async def test_guessing_is_slowed_down_and_counted(limited: Any, refused: Refused) -> None:
    async with httpx2.AsyncClient(base_url=limited.url, timeout=20) as http:
        tries = [await http.get(BASE, headers={"Authorization": f"Bearer bad{n}"}) for n in range(5)]
        numbers = (await http.get("/metrics")).text

    assert [answer.status_code for answer in tries] == [401] * 3 + [429] * 2
    refused(tries[4], 429)
    assert int(tries[4].headers["retry-after"]) <= 3600
    assert 'ingress_refusals_total{reason="credentials",role="none"} 2.0' in numbers


async def test_a_limited_call_with_its_scope_in_the_body_is_refused_early(
    start_ingress: Callable[..., Any],
) -> None:
    slow = start_ingress(RATE_LIMITS_READS="registered=2/h")
    parts = urlsplit(slow.url)
    async with asyncio.timeout(30):
        async with httpx2.AsyncClient(base_url=slow.url, timeout=20, headers={"X-Dev-User": "eve"}) as http:
            tries = [await http.post("/by-rn", json={"rn": "x"}) for _ in range(2)]
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = "POST /by-rn HTTP/1.1\r\nHost: localhost\r\nX-Dev-User: eve\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n".encode())
        status = await reader.readline()
        writer.close()

    assert [answer.status_code for answer in tries] == [422, 422]
    assert b"429" in status


async def test_messages_refused_by_a_full_queue_give_their_tokens_back(
    start_ingress: Callable[..., Any], refused: Refused
) -> None:
    full = start_ingress(RATE_LIMITS_WRITES="registered=5/h", QUEUE_MAX="16")
    message = {"text": "Let me in."}
    async with httpx2.AsyncClient(base_url=full.url, timeout=20, headers={"X-Dev-User": "fay"}) as http:
        answers = [await http.post(f"{BASE}/new/messages", json=message) for _ in range(6)]
        last = await http.post(BASE, json={})

    assert [answer.status_code for answer in answers] == [202] * 2 + [429] * 4
    refused(answers[2], 429)
    assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == ["r=4"] + ["r=3"] * 5
    assert last.status_code == 201
    assert last.headers["ratelimit"].split(";")[1] == "r=2"


def bearer(user: str, **claims: Any) -> dict[str, str]:
    body = {"iss": "i", "aud": "a", "sub": user, "exp": int(time.time()) + 600} | claims
    return {"Authorization": f"Bearer {jwt.encode(body, LIMITS['AUTH_SECRET'], 'HS256')}"}


@pytest.mark.parametrize("claims", [{}, {"tenant": "acme"}, {"project": "one"}], ids=["neither", "tenant", "project"])
async def test_a_token_without_tenant_or_project_is_refused(
    second_process: Any, claims: dict[str, str], refused: Refused
) -> None:
    async with httpx2.AsyncClient(base_url=second_process.url, timeout=20, headers=bearer("eve", **claims)) as http:
        answer = await http.get("/conversations/acme/one")

    assert "`tenant` and `project`" in refused(answer, 401)["detail"]


@pytest.mark.parametrize("path", ["/conversations/acme/p{n}", "/conversations/t{n}/one"], ids=["projects", "tenants"])
async def test_limits_count_a_user_across_projects(start_ingress: Callable[..., Any], path: str) -> None:
    """Where the operator accepts tokens for every tenant, made-up names in the address give no new bucket."""
    server = start_ingress(**LIMITS, AUTH_UNSCOPED_TOKENS="1")
    person = bearer(f"fay-{path.count('acme')}")
    async with httpx2.AsyncClient(base_url=server.url, timeout=20, headers=person) as http:
        answers = [await http.post(path.format(n=n), json={}) for n in range(40)]

    assert [answer.status_code for answer in answers] == [201] * 5 + [429] * 35


async def test_a_token_for_many_projects_has_one_bucket(start_ingress: Callable[..., Any]) -> None:
    server = start_ingress(GUESSING, **LIMITS)
    projects = [f"p{n}" for n in range(40)]
    person = bearer("gil", tenant="acme", project=projects)
    async with httpx2.AsyncClient(base_url=server.url, timeout=20, headers=person) as http:
        answers = [await http.post(f"/conversations/acme/{project}", json={}) for project in projects]

    assert [answer.status_code for answer in answers].count(201) == 5


async def test_unknown_links_of_a_page_do_not_count_as_credentials(start_ingress: Callable[..., Any]) -> None:
    server = start_ingress(GUESSING, **LIMITS)
    link = "/mcp-connections/callback/desk/mail"
    async with httpx2.AsyncClient(base_url=server.url, timeout=20) as http:
        unknown = [await http.get(link, params={"state": f"state-{n}", "code": "code"}) for n in range(5)]
        listed = await http.get("/conversations/acme/one", headers=bearer("ida", tenant="acme", project="one"))

    assert [answer.status_code for answer in unknown] == [401] * 3 + [429] * 2
    assert listed.status_code == 200
