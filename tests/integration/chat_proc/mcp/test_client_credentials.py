"""Servers that accept access tokens only: the platform gets them with its own credentials, from a real server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog
from fastapi import Request
from fastapi.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from helpers.authorization_server import (
    CLIENT_ID,
    CLIENT_SECRET,
    AuthorizationServer,
    protect,
    run_authorization_server,
)
from helpers.mcp_servers import Agent, Asked, RawServer, open_agent, send

from chat_proc.catalog.mcp_servers import McpServer
from chat_proc.mcp import oauth

pytestmark = pytest.mark.sampled

SECRETS = {"b:crm_secret": CLIENT_SECRET}


@pytest.fixture
async def login() -> AsyncGenerator[AuthorizationServer]:
    async with run_authorization_server() as server:
        yield server


def server_at(raw: RawServer, **more: Any) -> McpServer:
    credentials = {"grant": "client_credentials", "client_id": CLIENT_ID, "client_secret": "${b:crm_secret}"}
    return McpServer.model_validate({"url": raw.url, "oauth": credentials | more})


async def call(agent: Agent) -> str:
    return (await agent.call("mcp.s.act")).text


async def find_problem(server: McpServer, **options: Any) -> str:
    """Why there is no connection to a server."""
    async with open_agent(server, secrets=SECRETS, ready_within_s=1, **options) as agent:
        (problem,) = agent.servers.list_problems()
        return problem


async def test_tokens_are_found_by_the_metadata_of_both_servers(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)
    async with open_agent(server_at(raw, issuer=login.url, scopes=["crm.read", "crm.write"]), secrets=SECRETS) as agent:
        assert agent.servers.list_problems() == ()
        assert [await call(agent) for _ in range(3)] == ["done"] * 3
    assert login.forms == [
        {
            "grant_type": "client_credentials",
            "resource": raw.url,
            "scope": "crm.read crm.write",
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "sent_in": "header",
        }
    ]


async def test_a_configured_token_url_needs_no_metadata(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)
    server = server_at(raw, token_url=f"{login.url}/token", client_auth="post")
    async with open_agent(server, secrets=SECRETS) as agent:
        assert await call(agent) == "done"
    assert login.paths == ["/token"]
    assert login.forms[0]["sent_in"] == "form"


async def test_the_metadata_say_where_the_secret_is_sent(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)
    login.more_metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:
        assert await call(agent) == "done"
    assert login.forms[0]["sent_in"] == "form"


async def test_tokens_are_renewed_before_they_expire(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)
    login.expires_in = 1  # used for MIN_LIFETIME_S, and renewed after three quarters of it
    async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:
        await asyncio.sleep(oauth.MIN_LIFETIME_S * 0.75 + 0.1)
        rejected = len([asked for asked in raw.asked if asked.path == "/mcp"])
        assert await asyncio.gather(*(call(agent) for _ in range(10))) == ["done"] * 10
        assert len(login.forms) == 2
        assert len([asked for asked in raw.asked if asked.path == "/mcp"]) == rejected + 10


async def test_a_token_that_can_not_be_renewed_is_used_until_it_expires(
    raw: RawServer, login: AuthorizationServer
) -> None:
    protect(raw, login)
    login.expires_in = 1
    async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:

        async def away(_: Request) -> Response:
            return Response(status_code=503)

        login.override["/token"] = away
        await asyncio.sleep(oauth.MIN_LIFETIME_S * 0.75 + 0.1)
        assert await call(agent) == "done"
        await asyncio.sleep(oauth.MIN_LIFETIME_S * 0.25)
        assert "The call was not made: 127.0.0.1 did not issue a token: it answered 503." in await call(agent)


async def test_a_rejected_token_is_replaced_once_for_all_calls(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)
    login.delay_s = 0.2
    async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:
        login.revoke_all()
        assert await asyncio.gather(*(call(agent) for _ in range(10))) == ["done"] * 10
    assert len(login.forms) == 2


async def test_a_server_that_rejects_all_tokens_is_a_problem(raw: RawServer, login: AuthorizationServer) -> None:
    async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:

        async def reject(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            await send(writer, 401, b"")
            return True

        raw.before = reject
        texts = [await call(agent) for _ in range(2)]
        assert texts == [texts[0]] * 2 and "The call was not made: The server rejects access tokens" in texts[0]
        assert "rejects access tokens that were just issued" in agent.servers.list_problems()[0]
    assert len(login.forms) == 2, "each call requests a token"


async def test_a_rejected_token_that_can_not_be_replaced_says_why(
    raw: RawServer, login: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "FAILED_FOR_S", 0.0)
    protect(raw, login)
    async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:

        async def away(_: Request) -> Response:
            return Response(status_code=503)

        login.revoke_all()
        login.override["/token"] = away
        for _ in range(2):
            assert "127.0.0.1 did not issue a token: it answered 503." in await call(agent)
        del login.override["/token"]
        assert await call(agent) == "done"


async def test_a_wrong_secret_is_named_and_never_shown(
    raw: RawServer, login: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    protect(raw, login)
    with structlog.testing.capture_logs() as logs:
        async with open_agent(
            server_at(raw, issuer=login.url), secrets={"b:crm_secret": "wrong/secret"}, ready_within_s=1
        ) as agent:
            (problem,) = agent.servers.list_problems()
    assert "127.0.0.1 did not issue a token: it answered 401, invalid_client." in problem
    assert "wrong/secret" not in str(logs)


async def test_tokens_are_removed_from_results_and_logs(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)

    async def tell(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await raw.reply(writer, asked, {"content": [{"type": "text", "text": asked.headers["authorization"]}]})

    raw.answer = tell
    with structlog.testing.capture_logs() as logs:
        async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:
            assert await call(agent) == "Bearer [redacted]"
            login.revoke_all()
            assert await call(agent) == "Bearer [redacted]"
    assert not any(token in str(logs) for token in login.valid)


async def endless(_: Request) -> Response:
    async def write() -> AsyncIterator[bytes]:
        for _ in range(2_000):
            yield b'{"access_token": "' + b"x" * 65_536
            await asyncio.sleep(0.001)

    return StreamingResponse(write())


async def never(_: Request) -> Response:
    await asyncio.sleep(60)
    return Response()


async def to_metadata_address(_: Request) -> Response:
    return RedirectResponse("http://169.254.169.254/latest/meta-data", status_code=307)


def answer(body: Any) -> Callable[[Request], Awaitable[Response]]:
    async def send_body(_: Request) -> Response:
        return JSONResponse(body)

    return send_body


@pytest.mark.parametrize(
    ("token_answer", "message"),
    [
        (endless, "The server sent a reply of more than 65536 bytes"),
        (never, "could not be asked for a token (TimeoutError)"),
        (to_metadata_address, "did not issue a token: it answered 307"),
        (answer({"access_token": "a", "token_type": "mac"}), "token_type: Input should be 'Bearer'"),
        (answer({"access_token": "a\r\nX: b", "token_type": "bearer"}), "a token that can't be sent in a header"),
        (answer({"access_token": "x" * 20_000, "token_type": "bearer"}), "a token that can't be sent in a header"),
        (answer([]), "did not issue a token that can be used"),
    ],
    ids=["endless", "never", "redirect", "type", "injection", "long", "list"],
)
async def test_a_hostile_token_endpoint_is_a_problem(
    raw: RawServer,
    login: AuthorizationServer,
    monkeypatch: pytest.MonkeyPatch,
    token_answer: Callable[[Request], Awaitable[Response]],
    message: str,
) -> None:
    monkeypatch.setattr(oauth, "REQUEST_TIMEOUT_S", 0.5)
    protect(raw, login)
    login.override["/token"] = token_answer
    assert message in await find_problem(server_at(raw, issuer=login.url))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"issuer": "https://other.example"}, "is about another issuer: https://other.example"),
        ({"token_endpoint": "http://169.254.169.254/token"}, "at an address that must not be contacted"),
        ({"token_endpoint": "file:///etc/passwd"}, "is not an address of a web server"),
        ({"token_endpoint": 7}, "token_endpoint: Input should be a valid string"),
    ],
)
async def test_metadata_do_not_lead_the_secret_elsewhere(
    raw: RawServer, login: AuthorizationServer, metadata: dict[str, Any], message: str
) -> None:
    protect(raw, login)
    login.more_metadata = metadata
    assert message in await find_problem(server_at(raw, issuer=login.url))
    assert login.forms == []


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"authorization_servers": ["https://thief.example"]}, "accepts tokens of https://thief.example, not of the"),
        ({"resource": "https://bank.example/mcp"}, "is about another resource: https://bank.example/mcp"),
        ({"authorization_servers": []}, "is not metadata of an MCP server"),
    ],
)
async def test_an_mcp_server_gets_no_token_for_another(
    raw: RawServer, login: AuthorizationServer, metadata: dict[str, Any], message: str
) -> None:
    protect(raw, login, **metadata)
    assert message in await find_problem(server_at(raw, issuer=login.url))
    assert login.forms == []


async def test_the_rules_for_hosts_hold_for_authorization_servers(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)
    server = server_at(raw, token_url="https://login.example/token")
    problem = await find_problem(server, allowed_hosts=("127.0.0.1",))
    assert "The operator does not allow MCP servers at 'login.example'" in problem


async def test_a_token_is_not_sent_to_another_host(raw: RawServer, login: AuthorizationServer) -> None:
    protect(raw, login)
    async with open_agent(server_at(raw, issuer=login.url), secrets=SECRETS) as agent:

        async def elsewhere(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            await send(writer, 307, b"", f"Location: {login.url}/steal\r\n")
            return True

        raw.before = elsewhere
        assert "not followed" in await call(agent)
    assert "/steal" not in login.paths
