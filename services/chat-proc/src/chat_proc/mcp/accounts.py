"""People's own accounts at an MCP server: the links with which they connect one, and their tokens.

Tokens are read from the store for each call, and kept nowhere else in the process. What is stored is encrypted for its
person, bundle, server and address: tokens of one can't be used for another, nor after an author changed the address.
"""

import asyncio
import json
import os
import secrets
import time
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote, urlencode

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from mcp.shared.auth import OAuthToken
from pydantic import BaseModel, ConfigDict, ValidationError

from chat_proc.catalog.mcp_servers import TOKEN_TIMEOUT_S, OfferedServer, PersonalGrant
from chat_proc.catalog.tool import ConnectLink
from chat_proc.mcp.http import NoToken, TransportOptions
from chat_proc.mcp.oauth import (
    AGAIN_S,
    KEPT_TOKENS,
    OAuthRequests,
    TokenRefused,
    check_authorizing,
    check_trusted,
    choose_lifetime_s,
    match_issuers,
    renew_after,
)
from chat_proc.mcp.redacted import describe
from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError
from everturn.core.identity import Lane, Principal, lane_of
from everturn.core.ids import CallId, ConversationId
from everturn.core.logging import Redactor
from everturn.core.metrics import MCP_TOKENS
from everturn.mcp_connections.connections import ConnectRequest, ServerKey, StoredTokens, TokenStore, hash_state
from everturn.turns.model import approval_id_of

_log = structlog.get_logger(__name__)

LEASE_S: Final = TOKEN_TIMEOUT_S + 5.0
"""How long one worker may request and store a person's tokens before another one may try."""
ASK_AGAIN_S: Final = 0.2
"""Between two looks at tokens that another worker requests."""
CLIENT_LIFETIME_S: Final = 3_600.0
"""How long a registered client and the metadata are used for new links: an authorization server can forget clients."""
LINK_AGAIN_S: Final = 10.0
"""How long the failure to find a client is that of all links, so that calls in a row don't each wait for it."""
LINK_TIMEOUT_S: Final = TOKEN_TIMEOUT_S + 5.0
"""For a link, with an earlier answer that is tried before; a call is not decided on until then."""
NONCE_BYTES: Final = 12
ENDED: Final = "The connection has ended. Call the tool again to ask the person for a new one."
_GUEST: Final = "Guests can't connect accounts. The person has to sign in."
Gap = Literal["missing", "interrupted", "other"]
"""Why a person has to connect an account: there is none, a worker stopped while it exchanged their code, or the one
that they connected is for another configuration of the server."""
_GAPS: Final[Mapping[Gap, str]] = {
    "missing": "The person has not connected an account at {title}.",
    "interrupted": "The person signed in at {title}, but a worker stopped before the account was connected.",
    "other": "The account of the person at {title} was connected for another configuration of this server.",
}
_WHYS: Final[Mapping[Gap, str]] = {
    "missing": "",
    "interrupted": "Your last sign-in there was interrupted before the account was connected.",
    "other": "The account that you connected before is for another configuration of this service.",
}

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)
S = TypeVar("S", bound="Saved | Link")


class Client(BaseModel):
    """What tokens are requested with: the platform's client at one authorization server, and the MCP server's id.
    `client_secret` is that of a registered client; that of a configured one is not stored."""

    model_config = ConfigDict(frozen=True)

    issuer: str
    token_endpoint: str
    names_issuer: bool
    client_id: str
    client_secret: str | None
    client_auth: Literal["basic", "post", "none"]
    resource: str


class Saved(BaseModel):
    """The tokens of one person, as they are encrypted. `expires_at` and `renew_at` are in seconds since 1970."""

    model_config = ConfigDict(frozen=True)

    access_token: str
    refresh_token: str | None
    expires_at: float
    renew_at: float = 0.0
    client: Client


class Link(BaseModel):
    """What is encrypted with a link: the verifier that proves that we asked for its code (RFC 7636)."""

    model_config = ConfigDict(frozen=True)

    verifier: str
    client: Client


class Sealer:
    """Encrypts values with the operator's key of 64 hexadecimal digits. A value opens only for the kind and the place
    for which it was sealed."""

    def __init__(self, key: str) -> None:
        self._cipher = AESGCM(bytes.fromhex(key))

    def seal(self, value: BaseModel, place: tuple[str, ...]) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value.model_dump_json().encode(), _bind(type(value), place))

    def open(self, kind: type[B], sealed: bytes, place: tuple[str, ...]) -> B:
        """Raises NoToken if the key was changed or the value was sealed for another place."""
        try:
            data = self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _bind(kind, place))
            return kind.model_validate_json(data)
        except (InvalidTag, ValidationError, ValueError) as error:
            raise NoToken(ENDED) from error


def _bind(kind: type[BaseModel], place: tuple[str, ...]) -> bytes:
    return json.dumps([kind.__name__, *place]).encode()


@dataclass(frozen=True, slots=True)
class PersonalServer:
    """One server of a bundle. `secret` is the configured client's, `headers` are the configured ones and `hidden` all
    secrets. A browser returns to `callback_url`, which is this server's alone: a code that another authorization server
    sent there can't be taken for one of this server's."""

    offered: OfferedServer
    key: ServerKey
    grant: PersonalGrant
    callback_url: str
    secret: str | None
    url: str
    headers: Mapping[str, str]
    options: TransportOptions
    hidden: tuple[str, ...]
    reply_timeout_s: float


class PersonalTokens:
    """The tokens of all people for one server."""

    def __init__(self, server: PersonalServer, store: TokenStore, sealer: Sealer) -> None:
        self.server = server
        self._store = store
        self._sealer = sealer
        self._requests = OAuthRequests(server.url, server.options)
        self._registering = asyncio.Lock()
        self._client: tuple[Client, str] | None = None
        self._client_until_s = 0.0
        self._failure, self._failed_until_s = "", 0.0
        self._problem = ""
        self._working: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """End what runs. A request for tokens is given the time that it may take: what was sent is not valid twice."""
        try:
            if self._working:
                await asyncio.wait(self._working, timeout=LEASE_S)
        finally:
            await end_tasks(*self._working)

    async def find_link(
        self, call_id: CallId, principal: Principal, conversation_id: ConversationId
    ) -> ConnectLink | None:
        """Implements Connector."""
        server = self.server
        stored = await self._store.load(principal, server.key)
        if _is_guest(principal) or self._find_gap(principal, stored) is None:
            return None
        try:
            async with asyncio.timeout(LINK_TIMEOUT_S):
                await self._use_earlier_answer(principal, stored)
                gap = self._find_gap(principal, await self._store.load(principal, server.key))
                if gap is None:
                    return None
                client, endpoint = await self._find_client()
        except (NoToken, TimeoutError) as error:
            late = NoToken(f"A link could not be made within {LINK_TIMEOUT_S:g} s.")
            why = self._describe(error if isinstance(error, NoToken) else late)
            self._problem = f" There is no link to connect one: {why}"
            _log.warning("Could not make a link to connect an account", server=server.offered.alias, why=self._problem)
            return None
        verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(32)
        sealed = self._sealer.seal(Link(verifier=verifier, client=client), self._place(principal))
        request = ConnectRequest(
            approval_id_of(call_id), conversation_id, hash_state(state), server.grant.title, sealed
        )
        if not await self._store.save_request(principal, server.key, request):
            return None  # the person has followed the link of another worker, and the call claims their answer
        self._problem = ""
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": server.callback_url,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": client.resource,
            **({"scope": " ".join(server.grant.scopes)} if server.grant.scopes else {}),
        }
        url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
        return ConnectLink(server.grant.title, url, _WHYS[gap])

    async def _use_earlier_answer(self, principal: Principal, stored: StoredTokens | None) -> None:
        """Connect the account for which an answer came after its turn had ended."""
        try:
            await self._own(self._try_connect(principal, stored))
        except NoToken as error:
            _log.info(
                "An earlier answer of an authorization server could not be used",
                server=self.server.offered.alias,
                why=self._describe(error),
            )

    async def find(self, principal: Principal, rejected: str | None = None) -> str:
        """A valid token of this person; another one than `rejected`. Raises NoToken."""
        try:
            async with asyncio.timeout(LEASE_S):
                while True:
                    # Until another worker has requested tokens, or may not any more.
                    token = await self._try_find(principal, rejected)
                    if token is not None:
                        return token
                    await asyncio.sleep(ASK_AGAIN_S)
        except TimeoutError as error:
            raise NoToken(f"There was no access token within {LEASE_S:g} s.") from error

    async def _try_find(self, principal: Principal, rejected: str | None) -> str | None:
        """None while another worker requests tokens, and if the connection was changed or deleted meanwhile."""
        stored = await self._store.load(principal, self.server.key)
        if self._find_gap(principal, stored) is not None:
            token = await self._own(self._try_connect(principal, stored))
            gap = self._find_gap(principal, await self._store.load(principal, self.server.key))
            if token is None and gap is not None:
                raise NoToken(_GUEST if _is_guest(principal) else self._explain(gap))
            return token
        saved = self._try_open(Saved, principal, stored.sealed if stored else None)
        if stored is None or saved is None:
            return None
        now_s = time.time()
        is_usable = saved.access_token != rejected and now_s < saved.expires_at
        if is_usable and (now_s < saved.renew_at or saved.refresh_token is None):
            return saved.access_token
        if saved.refresh_token is None:
            await self._store.delete_version(principal, self.server.key, stored.version)
            raise NoToken(ENDED)
        usable = saved.access_token if is_usable else None
        return await self._own(self._try_renew(principal, stored, saved, usable))

    def _find_gap(self, principal: Principal, stored: StoredTokens | None) -> Gap | None:
        """None if there are tokens that can be used, or a worker requests the first ones."""
        if stored is None:
            return "missing"
        if stored.is_interrupted:
            return "interrupted"
        is_open = stored.sealed is None or self._try_open(Saved, principal, stored.sealed) is not None
        return None if is_open else "other"

    def _explain(self, gap: Gap) -> str:
        how = " Call the tool directly, not from a program, to ask them to connect one."
        return f"{_GAPS[gap].format(title=self.server.grant.title)}{self._problem or how}"

    def _try_open(self, kind: type[S], principal: Principal, sealed: bytes | None) -> S | None:
        """What a worker sealed for this person and server; None if it had another configuration. Both are in use while
        a change is rolled out, so that is left to workers like it."""
        try:
            found = None if sealed is None else self._sealer.open(kind, sealed, self._place(principal))
        except NoToken:
            return None
        issuer = self.server.grant.issuer
        is_ours = found is not None and (issuer is None or match_issuers(issuer, found.client.issuer))
        return found if is_ours else None

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that goes on if the caller is cancelled: the authorization server answers only once."""
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._discard)
        return await asyncio.shield(task)

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._working.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may have been cancelled

    async def _try_connect(self, principal: Principal, stored: StoredTokens | None) -> str | None:
        """Exchange the code that the person's browser has brought for tokens, which replace `stored`; None without a
        code. Raises NoToken also if there is one to a link of a worker with another configuration."""
        server, others = self.server, list[bytes]()

        def accepts(sealed: bytes) -> bool:
            is_ours = self._try_open(Link, principal, sealed) is not None
            if not is_ours:
                others.append(sealed)
            return is_ours

        replaced = stored.version if stored else None
        answer = await self._store.claim_answer(
            principal, server.key, accepts=accepts, lease_s=LEASE_S, replaced=replaced
        )
        if answer is None and others:
            raise NoToken(self._explain("other"))
        if answer is None:
            return None
        try:
            link = self._sealer.open(Link, answer.sealed, self._place(principal))
            client = link.client
            if (answer.issuer is None and client.names_issuer) or answer.issuer not in (None, client.issuer):
                # RFC 9207: the code of another server must not be sent to this one.
                raise NoToken("The account was not connected, because another authorization server has answered.")
            form = {
                "grant_type": "authorization_code",
                "code": answer.code,
                "redirect_uri": server.callback_url,
                "code_verifier": link.verifier,
            }
            token = await self._request(client, form)
        except NoToken:
            await self._store.delete_version(principal, server.key, answer.version)
            raise
        _log.info("A person has connected an account", server=server.offered.alias)
        return await self._save(principal, answer.version, token, client, None)

    async def _try_renew(
        self, principal: Principal, stored: StoredTokens, saved: Saved, usable: str | None
    ) -> str | None:
        """Renew tokens under the lease; the authorization server may accept a refresh token only once. While another
        worker has the lease, and if the attempt failed, the token that is still usable serves."""
        key, refresh_token = self.server.key, saved.refresh_token or ""
        if not await self._store.try_lease(principal, key, stored.version, lease_s=LEASE_S):
            return usable
        try:
            form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
            token = await self._request(saved.client, form)
        except TokenRefused as error:
            await self._store.delete_version(principal, key, stored.version)
            raise NoToken(f"{ENDED} {error.detail}") from error
        except NoToken:
            if usable is None:
                await self._store.release(principal, key, stored.version)
                raise
            postponed = saved.model_copy(update={"renew_at": time.time() + AGAIN_S})
            sealed = self._sealer.seal(postponed, self._place(principal))
            return usable if await self._store.replace(principal, key, stored.version, sealed) else None
        return await self._save(principal, stored.version, token, saved.client, refresh_token)

    async def _save(
        self, principal: Principal, version: int, token: OAuthToken, client: Client, refresh_token: str | None
    ) -> str | None:
        """The saved token; None if there are other tokens by now, of another worker or of a new connection."""
        now_s, lifetime_s = time.time(), choose_lifetime_s(token)
        saved = Saved(
            access_token=token.access_token,
            refresh_token=token.refresh_token or refresh_token,
            expires_at=now_s + lifetime_s,
            renew_at=now_s + renew_after(lifetime_s),
            client=client,
        )
        sealed = self._sealer.seal(saved, self._place(principal))
        if await self._store.replace(principal, self.server.key, version, sealed):
            return saved.access_token
        if await self._store.load(principal, self.server.key) is None:
            raise NoToken("The person has deleted the connection.")
        return None

    async def _request(self, client: Client, form: Mapping[str, str]) -> OAuthToken:
        grant = self.server.grant
        # Only the client at the configured server gets the secret: another server may choose any id for its clients.
        is_trusted = grant.issuer is not None and match_issuers(grant.issuer, client.issuer)
        is_configured = is_trusted and client.client_id == grant.client_id
        secret = self.server.secret if is_configured else client.client_secret
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S), self._requests.open(is_trusted=is_trusted) as http:
                token = await self._requests.request_token(
                    http,
                    client.token_endpoint,
                    {**form, "resource": client.resource},
                    client_id=client.client_id,
                    client_secret=secret or "",
                    client_auth=client.client_auth if secret else "none",
                )
        except (NoToken, TimeoutError) as error:
            MCP_TOKENS.labels("failed").inc()
            if isinstance(error, TimeoutError):
                raise NoToken(f"There was no access token within {TOKEN_TIMEOUT_S:g} s.") from error
            why = self._describe(error)
            _log.warning("Could not get a person's access token", server=self.server.offered.alias, why=why)
            # A wrong secret of the operator's does not end the connections of people.
            is_over = isinstance(error, TokenRefused) and (error.is_grant or not is_configured)
            raise (TokenRefused(why, is_grant=True) if is_over else NoToken(why)) from error
        MCP_TOKENS.labels("issued").inc()
        return token

    async def _find_client(self) -> tuple[Client, str]:
        """The client at the server's authorization server, and where people authorize it. A failure is that of the
        next LINK_AGAIN_S, too."""
        now_s = asyncio.get_running_loop().time
        async with self._registering:
            if now_s() < self._failed_until_s:
                raise NoToken(self._failure)
            if self._client is None or now_s() > self._client_until_s:
                try:
                    async with asyncio.timeout(TOKEN_TIMEOUT_S):
                        self._client = await self._register()
                except (NoToken, TimeoutError) as error:
                    late = f"The authorization server did not answer within {TOKEN_TIMEOUT_S:g} s."
                    self._failure = error.detail if isinstance(error, NoToken) else late
                    self._failed_until_s = now_s() + LINK_AGAIN_S
                    raise NoToken(self._failure) from error
                self._client_until_s = now_s() + CLIENT_LIFETIME_S
            return self._client

    async def _register(self) -> tuple[Client, str]:
        grant, server = self.server.grant, self.server
        async with self._requests.open(is_trusted=grant.issuer is not None) as http:
            about = await self._requests.find_resource(http, use_challenge=True)
            trusted = [str(each) for each in about.authorization_servers] if about else []
            if grant.issuer is not None and trusted:
                check_trusted(grant.issuer, trusted)
            issuer = grant.issuer or (trusted[0] if trusted else None)
            if issuer is None:
                raise NoToken("The metadata of the MCP server name no authorization server (RFC 9728). Set issuer.")
            if server.url.startswith("https:") and grant.issuer is None and not issuer.startswith("https:"):
                raise NoToken(f"The MCP server names an issuer without TLS: {issuer}. Set issuer.")
            found = await self._requests.find_server(http, issuer)
            endpoint = check_authorizing(found)
            client_id, secret, auth = grant.client_id, None, grant.client_auth or found.client_auth
            if client_id is None:
                client_id, secret, auth = await self._requests.register(http, found, server.callback_url, grant.scopes)
        client = Client(
            issuer=found.issuer,
            token_endpoint=found.token_endpoint,
            names_issuer=found.authorization_response_iss_parameter_supported,
            client_id=client_id,
            client_secret=secret,
            client_auth=auth,
            resource=self._requests.choose_resource(about),
        )
        return client, endpoint

    def _place(self, principal: Principal) -> tuple[str, ...]:
        return *principal.owner, self.server.key.bundle_id, self.server.key.server, self.server.url

    def _describe(self, error: EverturnError) -> str:
        """What servers say is wrong, as one line without secrets."""
        return describe(Redactor(self.server.hidden), error.detail)


def build_callback_url(base: str, key: ServerKey) -> str:
    """Where the authorization server of one MCP server sends browsers to."""
    return f"{base}/{quote(key.bundle_id, safe='')}/{key.server}"


def _is_guest(principal: Principal) -> bool:
    """A page could not tell the person who authorizes from the guest who gets access: guests have no name."""
    return lane_of(principal.roles) is Lane.ANONYMOUS


class PersonSource:
    """The tokens of one person for one call. Implements TokenSource."""

    def __init__(self, tokens: PersonalTokens, principal: Principal, redactor: Redactor) -> None:
        self._tokens = tokens
        self._principal = principal
        self._redactor = redactor
        self._recent: deque[str] = deque(maxlen=KEPT_TOKENS)
        self._has_replaced = False

    async def find(self, rejected: str | None = None) -> str:
        if rejected is not None:
            if self._has_replaced:
                raise NoToken(
                    "The server rejects access tokens that were just issued to this person. They can delete the "
                    "connection, and connect again."
                )
            self._has_replaced = True
        token = await self._tokens.find(self._principal, rejected)
        if token not in self._recent:
            self._recent.append(token)
        self._redactor.set_secrets((*self._tokens.server.hidden, *self._recent))
        return token
