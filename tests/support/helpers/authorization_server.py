"""An authorization server for tests, over real HTTP, and MCP servers that accept its tokens only."""

import asyncio
import socket
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from helpers.mcp_servers import Asked, RawServer, send
from helpers.waiting import wait_until

CLIENT_ID, CLIENT_SECRET = "everturn:test", "s3cret/with=signs"


@dataclass(frozen=True)
class Issued:
    """What a token was issued for, and to whose account it belongs."""

    client_id: str
    scope: str
    resource: str
    account: str = ""


@dataclass
class AuthorizationServer:
    """Issues tokens for its one client. Fields change what it does from then on; `override` answers a path itself."""

    url: str
    expires_in: int | None = 3_600
    more_metadata: dict[str, Any] = field(default_factory=dict)
    override: dict[str, Callable[[Request], Awaitable[Response]]] = field(default_factory=dict)
    delay_s: float = 0.0
    forms: list[dict[str, str]] = field(default_factory=list)
    """The accepted requests for a token, in order."""
    paths: list[str] = field(default_factory=list)
    valid: dict[str, Issued] = field(default_factory=dict)
    """The tokens that are accepted."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refreshable: dict[str, Issued] = field(default_factory=dict)
    """Refresh tokens; each can be used once."""
    clients: list[dict[str, Any]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def revoke_all(self) -> None:
        self.valid.clear()

    async def answer_metadata(self) -> Response:
        metadata = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "registration_endpoint": f"{self.url}/register",
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse(metadata | self.more_metadata)

    async def answer_token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        kind, _, packed = request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            form["client_id"], form["client_secret"] = map(unquote, b64decode(packed).decode().split(":"))
        await asyncio.sleep(self.delay_s)
        if form.get("grant_type") in ("authorization_code", "refresh_token"):
            return self._answer_person(form)
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            echo = f"the secret {form.get('client_secret')} is wrong"
            return JSONResponse({"error": "invalid_client", "error_description": echo}, status_code=401)
        self.forms.append({**form, "sent_in": "header" if kind else "form"})
        token = f"token-{next(self._numbers)}-abcdef"
        self.valid[token] = Issued(form["client_id"], form.get("scope", ""), form.get("resource", ""))
        body = {"access_token": token, "token_type": "bearer", "expires_in": self.expires_in}
        return JSONResponse({name: value for name, value in body.items() if value is not None})

    def authorize(self, link: str, account: str, **changed: str) -> str:
        """Where the browser of someone who accepts at this link with an account of theirs is sent."""
        asked = dict(parse_qsl(urlsplit(link).query))
        assert link.startswith(f"{self.url}/authorize?") and asked["code_challenge_method"] == "S256"
        code = f"code-{next(self._numbers)}-of-{account}"
        self.codes[code] = {**asked, "account": account}
        answer = {"code": code, "state": asked["state"], "iss": self.url} | changed
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def _answer_person(self, form: dict[str, str]) -> Response:
        if form["grant_type"] == "refresh_token":
            issued = self.refreshable.pop(form["refresh_token"], None)
        else:
            asked = self.codes.pop(form["code"], None)
            challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            if asked and (asked["code_challenge"], asked["redirect_uri"]) != (challenge, form["redirect_uri"]):
                asked = None
            issued = asked and Issued(asked["client_id"], asked.get("scope", ""), asked["resource"], asked["account"])
        if not issued or issued.client_id != form.get("client_id"):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        self.forms.append(form)
        number = next(self._numbers)
        token, refresh = f"token-{number}-of-{issued.account}", f"refresh-{number}-of-{issued.account}"
        self.valid[token] = self.refreshable[refresh] = issued
        body = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in, "refresh_token": refresh}
        return JSONResponse(body)

    async def answer_registration(self, request: Request) -> Response:
        self.clients.append(await request.json())
        return JSONResponse({"client_id": f"client-{len(self.clients)}"}, status_code=201)

    def build_app(self) -> FastAPI:
        app = FastAPI()

        @app.api_route("/{path:path}", methods=["GET", "POST"])
        async def answer(path: str, request: Request) -> Response:
            self.paths.append(f"/{path}")
            if own := self.override.get(f"/{path}"):
                return await own(request)
            match f"{request.method} /{path}":
                case "GET /.well-known/oauth-authorization-server":
                    return await self.answer_metadata()
                case "POST /register":
                    return await self.answer_registration(request)
                case "POST /token":
                    return await self.answer_token(request)
                case _:
                    return Response(status_code=404)

        return app


@asynccontextmanager
async def run_app(app: FastAPI, bound: socket.socket) -> AsyncGenerator[None]:
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve([bound]))
    try:
        await wait_until(lambda: server.started)
        yield
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def run_authorization_server() -> AsyncGenerator[AuthorizationServer]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = AuthorizationServer(f"http://127.0.0.1:{bound.getsockname()[1]}")
        async with run_app(server.build_app(), bound):
            yield server


def protect(raw: RawServer, server: AuthorizationServer, **metadata: Any) -> None:
    """Let the MCP server accept only valid tokens that were issued for it, and publish its metadata."""

    async def before(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        if asked.path == "/.well-known/oauth-protected-resource/mcp":
            about = {"resource": raw.url, "authorization_servers": [server.url], **metadata}
            await raw.send_json(writer, about)
            return True
        issued = server.valid.get(asked.headers.get("authorization", "").removeprefix("Bearer "))
        if asked.path == "/mcp" and issued is not None and issued.resource == raw.url:
            return False
        await send(writer, 404 if asked.path != "/mcp" else 401, b"")
        return True

    raw.before = before
