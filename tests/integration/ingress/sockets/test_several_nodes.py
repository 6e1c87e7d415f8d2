"""Sockets on several nodes, their credentials, and their end when a server drains."""

import asyncio
import secrets
import time
from typing import Any

import jwt
import pytest

SECRET = secrets.token_hex(32)
ISSUER, AUDIENCE = "https://issuer.test", "everturn"
PRODUCTION = {
    "EVERTURN_MODE": "production",
    "APP_AV_SCAN": "1",
    "CLAMD_URL": "tcp://127.0.0.1:9",
    "AUTH_SECRET": SECRET,
    "AUTH_ISSUER": ISSUER,
    "AUTH_AUDIENCE": AUDIENCE,
}


def build_token(user: str = "ada", *, expires_in_s: float = 600, **claims: Any) -> str:
    now = int(time.time())
    payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + int(expires_in_s)}
    payload |= {"tenant": "default", "project": "default"} | claims
    return jwt.encode(payload, SECRET, algorithm="HS256")


@pytest.fixture(scope="module")
def strict(start_ingress: Any) -> Any:
    """An ingress that requires tokens."""
    return start_ingress(**PRODUCTION)


async def test_a_message_on_one_node_is_followed_on_another(
    socket: Any, sockets: Any, start_ingress: Any, worker: Any
) -> None:
    other = start_ingress()
    elsewhere = await sockets(other.url).connect()
    sent = await socket.call("chat_message", {"conversation_id": "new", "text": "hello"})
    conversation = sent["body"]["conversation_id"]

    await elsewhere.call("conv_subscribe", {"conversation_id": conversation})
    snapshot = await elsewhere.until("stream_snapshot")
    await worker.claim(conversation)
    (said,) = await worker.say(conversation, "a")

    assert snapshot["data"]["state"]["turns"][0]["text"] == "hello"
    assert (await elsewhere.until("chat_delta"))["id"] == said

    status = await asyncio.to_thread(other.stop)

    farewells = [await elsewhere.until("server_shutdown")]
    await elsewhere.gone()
    assert status == 0
    assert 500 <= farewells[0]["data"]["retry_ms"] <= 3000
    assert "Traceback" not in other.log.read_text()


async def test_a_bad_credential_is_refused_with_its_problem(strict: Any, sockets: Any) -> None:
    expired = build_token(expires_in_s=-600)

    refusals = [
        await sockets(strict.url).refused(),
        await sockets(strict.url).refused(token="nonsense"),
        await sockets(strict.url).refused(token=expired),
        await sockets(strict.url).refused(token=build_token(), headers={"Authorization": "Bearer x"}),
        await sockets(strict.url).refused(token=build_token(), headers={"Origin": "https://evil.example"}),
        await sockets(strict.url).refused(token=build_token(), tenant="a/b"),
        await sockets(strict.url).refused(token=build_token(), tenant=1),
    ]

    assert [each["status"] for each in refusals] == [401, 401, 401, 401, 403, 404, 422]
    assert all(each["type"].startswith("urn:everturn:problem:") for each in refusals)


async def test_a_token_opens_a_socket_until_it_expires(strict: Any, sockets: Any) -> None:
    # Tokens are taken for a minute after their end, because clocks differ.
    lasting = await sockets(strict.url).connect(headers={"Authorization": f"Bearer {build_token()}"})
    brief = await sockets(strict.url).connect(token=build_token(expires_in_s=-50))

    info = await brief.until("session_info")
    end = await brief.until("session_end")
    await brief.gone()

    assert info["user_id"] == "ada"
    assert (end["status"], end["body"]["status"]) == (401, 401)
    assert (await lasting.call("conv_status.get", {"conversation_id": "x"}))["status"] == 404


async def test_a_foreign_page_opens_no_socket_in_development(sockets: Any) -> None:
    refused = await sockets().refused(headers={"Origin": "https://evil.example"})

    assert refused["status"] == 403


async def test_one_user_has_only_so_many_sockets(sockets: Any, start_ingress: Any) -> None:
    ingress = start_ingress({"streams_of_user": 2})
    first, _ = [await sockets(ingress.url).connect() for _ in range(2)]

    refused = await sockets(ingress.url).refused()
    await first.sio.disconnect()

    assert refused["status"] == 429
    assert refused["retry_after_s"] > 0


async def test_guessing_is_limited_wherever_the_token_is_sent(sockets: Any, start_ingress: Any) -> None:
    ingress = start_ingress({"bad_credentials": [2, 3600]})

    refusals = [
        await sockets(ingress.url).refused(headers={"Authorization": "Bearer bad1"}),
        await sockets(ingress.url).refused(token="bad2"),
        await sockets(ingress.url).refused(headers={"Authorization": "Bearer bad3"}),
    ]

    assert [refusal["status"] for refusal in refusals] == [401, 401, 429]
