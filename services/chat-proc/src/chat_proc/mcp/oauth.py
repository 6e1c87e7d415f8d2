"""Access tokens for MCP servers: finds the authorization server (RFC 9728, RFC 8414) and requests tokens from it for
one MCP server (RFC 8707).

The SDK's `OAuthClientProvider` is not used: it holds one lock during each request with its whole reply, has no limits,
falls back to guessed addresses, asks for a token only after a 401, and raises errors that end the session of all calls.
"""

import asyncio
import json
from base64 import b64encode
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import quote, urlsplit

import httpx2
import structlog
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    issuers_match,
)
from mcp.shared.auth import OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chat_proc.catalog.mcp_servers import TOKEN_TIMEOUT_S, ClientCredentials
from chat_proc.mcp.http import HostTransport, NoToken, TransportOptions
from chat_proc.mcp.redacted import describe
from everturn.core.errors import Invalid, Unavailable
from everturn.core.http_bodies import UnreadableBody, check_size, unpack
from everturn.core.logging import Redactor
from everturn.core.metrics import MCP_TOKENS
from everturn.core.urls import DEFAULT_PORTS

_log = structlog.get_logger(__name__)

MAX_DOCUMENT_BYTES: Final = 64 * 1024
"""Limit of a reply of an authorization server, and of metadata."""
MAX_TOKEN_CHARS: Final = 16_000
REQUEST_TIMEOUT_S: Final = 10.0
"""For the whole reply to one request."""
EARLY_S: Final = 60.0
"""A token is renewed so long before it expires, or after three quarters of its life if that is later."""
DEFAULT_LIFETIME_S: Final = 3_600.0
"""Life of a token whose server doesn't name one."""
MIN_LIFETIME_S: Final = 5.0
"""So long a token is used even if its server says less, so that not every call requests one."""
AGAIN_S: Final = 10.0
"""After a rejected token was replaced, or one could not be renewed: before another one is requested."""
FAILED_FOR_S: Final = 2.0
"""How long the calls that wait for a token share the failure of one request."""
MAX_LIFETIME_S: Final = 10 * 365 * 86_400
"""So long a token is used at most, whatever its server says."""
REFUSALS: Final = ("invalid_grant", "invalid_client", "unauthorized_client")
"""Errors that another attempt with the same values does not change."""
ERROR_CODES: Final = frozenset({
    *REFUSALS, "invalid_request", "unsupported_grant_type", "invalid_scope", "invalid_target", "access_denied",
    "server_error", "temporarily_unavailable", "invalid_redirect_uri", "invalid_client_metadata",
    "invalid_software_statement", "unapproved_software_statement",
})  # fmt: skip
"""Errors of RFC 6749, 7591 and 8707. Nothing else of an error reply is shown: any server could have written it, and
some repeat what they were sent."""
KEPT_TOKENS: Final = 4
"""Latest tokens that are removed from what the server sends."""


MAX_ADDRESS_CHARS: Final = 2_000
_Address = Annotated[str, Field(max_length=MAX_ADDRESS_CHARS, pattern=r"^[\x21-\x7e]*$")]


class AuthorizationServer(BaseModel):
    """What its metadata says (RFC 8414). The SDK's model requires an authorization endpoint, for which a server for
    programs has no use."""

    model_config = ConfigDict(frozen=True)

    issuer: _Address
    token_endpoint: _Address
    authorization_endpoint: _Address | None = None
    registration_endpoint: _Address | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None

    @property
    def client_auth(self) -> Literal["basic", "post"]:
        methods = self.token_endpoint_auth_methods_supported
        return (
            "post" if methods and "client_secret_basic" not in methods and "client_secret_post" in methods else "basic"
        )


class TokenRefused(NoToken):
    """The authorization server does not accept the client (RFC 6749, section 5.2), or if `is_grant` the code or the
    refresh token."""

    def __init__(self, detail: str, *, is_grant: bool) -> None:
        super().__init__(detail)
        self.is_grant = is_grant


class _Registered(BaseModel):
    """What a server answers to a registration (RFC 7591, section 3.2.1)."""

    client_id: str = Field(min_length=1, max_length=1_000, pattern=r"^[\x20-\x7e]*$")
    client_secret: str | None = Field(default=None, max_length=1_000, pattern=r"^[\x20-\x7e]*$")
    token_endpoint_auth_method: str | None = None


class OAuthRequests:
    """Requests about the MCP server at `url`. All raise NoToken."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._url = url
        self._options = options

    @asynccontextmanager
    async def open(self, *, is_trusted: bool) -> AsyncGenerator[httpx2.AsyncClient]:
        """A client for a few requests. It follows no redirects: they could lead a secret elsewhere. Unless the operator
        or the author has named the authorization server (`is_trusted`), it requests nothing of a private network but
        the MCP server's own host: the server could choose any address that only we can reach."""
        own_host = None if is_trusted else httpx2.URL(self._url).host
        headers = {"User-Agent": "Everturn/1.0 (mcp)", "Accept": "application/json"}
        async with httpx2.AsyncClient(
            transport=HostTransport(self._options, own_host),
            headers=headers,
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,
        ) as client:
            yield client

    async def find_resource(
        self, client: httpx2.AsyncClient, *, use_challenge: bool = False
    ) -> ProtectedResourceMetadata | None:
        """What the MCP server says about itself at the addresses of RFC 9728, or with `use_challenge` at the one that
        it names when it refuses a request without a token; None if it says nothing."""
        named = await self._find_named_metadata(client) if use_challenge else None
        for address in build_protected_resource_metadata_discovery_urls(named, self._url):
            status, body = await _fetch(client, "GET", address)
            if status >= 500 or status == 429:
                raise NoToken(f"The metadata of the MCP server could not be read: {address} answered {status}.")
            if status != 200:
                continue
            try:
                found = ProtectedResourceMetadata.model_validate_json(body)
            except ValidationError as error:
                raise NoToken(f"{address} is not metadata of an MCP server: {_first_problem(error)}") from error
            if len(str(found.resource)) > MAX_ADDRESS_CHARS:
                raise NoToken(f"The metadata at {address} name a resource of more than {MAX_ADDRESS_CHARS} characters.")
            if not check_resource_allowed(resource_url_from_server_url(self._url), str(found.resource)):
                raise NoToken(f"The metadata of the MCP server is about another resource: {found.resource}")
            return found
        return None

    def choose_resource(self, about: ProtectedResourceMetadata | None) -> str:
        """For what tokens are requested: the server's own address (RFC 8707), in the spelling of its metadata. Metadata
        about all of a host can't widen it: other servers of that host would accept the tokens, too."""
        own = resource_url_from_server_url(self._url)
        named = own if about is None else str(about.resource)
        return named if named.rstrip("/") == own.rstrip("/") else own

    async def _find_named_metadata(self, client: httpx2.AsyncClient) -> str | None:
        try:
            request = client.build_request("GET", self._url, headers={"Accept": "text/event-stream"})
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await client.send(request, stream=True)
                await response.aclose()
        except (Invalid, Unavailable, httpx2.HTTPError, TimeoutError):
            return None  # the well-known addresses say more about what is wrong
        named = extract_resource_metadata_from_www_auth(response) if response.status_code in (401, 403) else None
        try:
            # Somewhere else, it could be an address that only we can reach.
            return named if named and urlsplit(named)[:2] == urlsplit(self._url)[:2] else None
        except ValueError:
            return None  # no address

    async def register(
        self, client: httpx2.AsyncClient, server: AuthorizationServer, callback_url: str, scopes: Sequence[str]
    ) -> tuple[str, str | None, Literal["basic", "post"]]:
        """A new client for the platform (RFC 7591): its id, its secret if it has one, and where that is sent."""
        if server.registration_endpoint is None:
            raise NoToken(f"{server.issuer} does not register clients by itself. Set client_id.")
        about = {
            "client_name": "Everturn",
            "redirect_uris": [callback_url],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "web",
            **({"scope": " ".join(scopes)} if scopes else {}),
        }
        status, body = await _fetch(client, "POST", server.registration_endpoint, json=about)
        if status not in (200, 201):
            raise NoToken(f"{server.issuer} did not register a client: it answered {status}{_describe_error(body)}.")
        try:
            made = _Registered.model_validate_json(body)
        except ValidationError as error:
            raise NoToken(f"{server.issuer} did not register a client: {_first_problem(error)}") from error
        method = made.token_endpoint_auth_method
        secret = None if method == "none" else made.client_secret
        return made.client_id, secret, "post" if method == "client_secret_post" else "basic"

    async def find_server(self, client: httpx2.AsyncClient, issuer: str) -> AuthorizationServer:
        """The authorization server with this issuer."""
        for address in build_oauth_authorization_server_metadata_discovery_urls(issuer, self._url):
            status, body = await _fetch(client, "GET", address)
            if status >= 500 or status == 429:
                raise NoToken(f"The metadata of {issuer} could not be read: {address} answered {status}.")
            if status != 200:
                continue
            try:
                server = AuthorizationServer.model_validate_json(body)
            except ValidationError as error:
                raise NoToken(f"{address} is not metadata of a server: {_first_problem(error)}") from error
            if not match_issuers(server.issuer, issuer):
                raise NoToken(f"The metadata at {address} is about another issuer: {server.issuer}")
            for endpoint in (server.token_endpoint, server.authorization_endpoint, server.registration_endpoint):
                if issuer.startswith("https:") and endpoint and not endpoint.startswith("https:"):
                    raise NoToken(f"{issuer} names an endpoint without TLS: {endpoint}")
            return server
        raise NoToken(f"{issuer} has no metadata of an authorization server (RFC 8414).")

    async def request_token(
        self,
        client: httpx2.AsyncClient,
        endpoint: str,
        form: Mapping[str, str],
        *,
        client_id: str,
        client_secret: str,
        client_auth: Literal["basic", "post", "none"],
    ) -> OAuthToken:
        """The token that the endpoint issues for this form. Raises TokenRefused if it won't for these values."""
        headers, sent = dict[str, str](), dict(form)
        if client_auth == "basic":
            pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            sent |= {"client_id": client_id, **({"client_secret": client_secret} if client_auth == "post" else {})}
        status, body = await _fetch(client, "POST", endpoint, data=sent, headers=headers)
        host = httpx2.URL(endpoint).host
        if status != 200:
            problem = f"{host} did not issue a token: it answered {status}{_describe_error(body)}."
            if status in (400, 401) and (code := _read_error(body)) in REFUSALS:
                raise TokenRefused(problem, is_grant=code == "invalid_grant")
            raise NoToken(problem)
        try:
            token = OAuthToken.model_validate_json(body)
        except ValidationError as error:
            raise NoToken(f"{host} did not issue a token that can be used: {_first_problem(error)}") from error
        text = token.access_token
        if not 1 <= len(text) <= MAX_TOKEN_CHARS or not text.isascii() or not text.isprintable():
            raise NoToken(f"{host} issued a token that can't be sent in a header.")
        if len((token.refresh_token or "").encode()) > MAX_TOKEN_CHARS:
            raise NoToken(f"{host} issued a refresh token of more than {MAX_TOKEN_CHARS} bytes.")
        return token


async def _fetch(client: httpx2.AsyncClient, method: str, url: str, **content: Any) -> tuple[int, bytes]:
    """The status and the body of a reply. Raises NoToken."""
    try:
        request = client.build_request(method, url, **content)
    except (httpx2.InvalidURL, ValueError) as error:
        raise NoToken(f"{url} is not an address.") from error
    host = request.url.host
    if request.url.scheme not in DEFAULT_PORTS or not host or (request.url.port or 0) > 65_535:
        raise NoToken(f"{url} is not an address of a web server.")
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            response = await client.send(request, stream=True)
            try:
                raw = cast(httpx2.AsyncByteStream, response.stream)
                encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
                async with aclosing(check_size(unpack(raw, encoding), MAX_DOCUMENT_BYTES)) as pieces:
                    return response.status_code, b"".join([piece async for piece in pieces])
            finally:
                await response.aclose()
    except UnreadableBody as error:
        raise NoToken(f"The reply of {host} can't be read. {error.detail}") from error
    except (Invalid, Unavailable) as error:
        raise NoToken(error.detail) from error
    except (httpx2.HTTPError, TimeoutError) as error:
        raise NoToken(f"{host} could not be asked for a token ({type(error).__name__}).") from error


def _read_error(body: bytes) -> str | None:
    """The code of ERROR_CODES that the body has (RFC 6749, section 5.2), if any."""
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    code: Any = cast("dict[str, Any]", parsed).get("error") if isinstance(parsed, dict) else None
    return code if isinstance(code, str) and code in ERROR_CODES else None


def _describe_error(body: bytes) -> str:
    code = _read_error(body)
    return "" if code is None else f", {code}"


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}."


class ClientTokens:
    """The tokens of one server that the platform gets with its own credentials. Those of all turns share one."""

    def __init__(
        self,
        alias: str,
        url: str,
        grant: ClientCredentials,
        secret: str,
        options: TransportOptions,
        redactor: Redactor,
        hidden: Sequence[str],
    ) -> None:
        """The redactor hides `hidden` and the latest tokens."""
        self._alias = alias
        self._url = url
        self._grant = grant
        self._secret = secret
        self._requests = OAuthRequests(url, options)
        self._redactor = redactor
        self._hidden = tuple(hidden)
        self._recent: deque[str] = deque(maxlen=KEPT_TOKENS)
        self._lock = asyncio.Lock()
        self._token: str | None = None
        self._renew_at_s = self._expires_at_s = self._failed_until_s = self._replaced_until_s = 0.0
        self.problem = ""
        """Why the last request failed; empty after a successful one."""

    async def find(self, rejected: str | None = None) -> str:
        # One request at a time; those that wait then get its token or its failure.
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            usable = self._token if self._token != rejected and now_s < self._expires_at_s else None
            if usable is not None and now_s < self._renew_at_s:
                return usable
            if usable is None and now_s < self._failed_until_s:
                raise NoToken(self.problem)
            is_rejected = self._token is not None and self._token == rejected
            if is_rejected and now_s < self._replaced_until_s:
                self.problem = "The server rejects access tokens that were just issued. Check scopes and resource."
                raise NoToken(self.problem)
            try:
                token = await self._request()
            except NoToken as error:
                now_s = asyncio.get_running_loop().time()
                why = describe(self._redactor, error.detail)
                MCP_TOKENS.labels("failed").inc()
                _log.warning("Could not get an access token for an MCP server", server=self._alias, why=why)
                self.problem = why
                if usable is not None:
                    self._renew_at_s = now_s + AGAIN_S
                    return usable
                self._failed_until_s = now_s + FAILED_FOR_S
                raise NoToken(why) from error
            self._keep(token)
            if is_rejected:
                # From now on: a server that takes its time to issue tokens must not be asked again and again.
                self._replaced_until_s = asyncio.get_running_loop().time() + AGAIN_S
            return token.access_token

    async def _request(self) -> OAuthToken:
        grant = self._grant
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S), self._requests.open(is_trusted=True) as client:
                endpoint, client_auth, about = grant.token_url, grant.client_auth, None
                if grant.issuer is not None:
                    about = await self._requests.find_resource(client)
                    if about is not None:
                        check_trusted(grant.issuer, [str(each) for each in about.authorization_servers])
                    server = await self._requests.find_server(client, grant.issuer)
                    endpoint, client_auth = server.token_endpoint, client_auth or server.client_auth
                form = {
                    "grant_type": "client_credentials",
                    "resource": self._requests.choose_resource(about),
                    **({"scope": " ".join(grant.scopes)} if grant.scopes else {}),
                }
                return await self._requests.request_token(
                    client,
                    endpoint or "",
                    form,
                    client_id=grant.client_id,
                    client_secret=self._secret,
                    client_auth=client_auth or "basic",
                )
        except TimeoutError as error:
            raise NoToken(f"There was no access token within {TOKEN_TIMEOUT_S:g} s.") from error

    def _keep(self, token: OAuthToken) -> None:
        now_s = asyncio.get_running_loop().time()
        lifetime_s = choose_lifetime_s(token)
        self._token, self._expires_at_s, self.problem = token.access_token, now_s + lifetime_s, ""
        self._renew_at_s = now_s + renew_after(lifetime_s)
        self._recent.append(token.access_token)
        self._redactor.set_secrets((*self._hidden, *self._recent))
        MCP_TOKENS.labels("issued").inc()
        _log.info("Got an access token for an MCP server", server=self._alias, lifetime_s=lifetime_s)


def choose_lifetime_s(token: OAuthToken) -> float:
    """How many seconds the token is used."""
    granted_s = DEFAULT_LIFETIME_S if token.expires_in is None else token.expires_in
    return max(MIN_LIFETIME_S, float(min(MAX_LIFETIME_S, granted_s)))


def renew_after(lifetime_s: float) -> float:
    """After how many seconds of its life a token is renewed."""
    return max(lifetime_s - EARLY_S, lifetime_s * 0.75)


def check_authorizing(server: AuthorizationServer) -> str:
    """The address at which people authorize a client. Raises NoToken."""
    endpoint = server.authorization_endpoint or ""
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in DEFAULT_PORTS and bool(parts.hostname)
    except ValueError:
        is_address = False
    else:
        is_address = is_address and "@" not in parts.netloc and not parts.fragment
    if not is_address:
        raise NoToken(f"{server.issuer} names no address at which people can authorize.")
    if "S256" not in (server.code_challenge_methods_supported or ()):
        raise NoToken(f"{server.issuer} does not support PKCE with S256, so accounts can't be connected there.")
    return endpoint


def match_issuers(one: str, other: str) -> bool:
    """Whether both name the same issuer. What is no address matches nothing."""
    try:
        return issuers_match(one, other)
    except ValueError:
        return False


def check_trusted(issuer: str, trusted: Sequence[str]) -> None:
    """Raise NoToken if the MCP server does not accept tokens of this issuer."""
    if not any(match_issuers(issuer, each) for each in trusted):
        raise NoToken(f"The MCP server accepts tokens of {', '.join(trusted)}, not of the issuer {issuer}.")
