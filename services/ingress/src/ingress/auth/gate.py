"""Authentication: the one place where a request or a socket gets its principal, whatever its credential is."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Path, Request
from starlette.datastructures import Headers

from everturn.core.clock import Clock
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from ingress.auth.api_keys import PREFIX as KEY_PREFIX
from ingress.auth.callers import Caller, Proof, is_scope_name
from ingress.auth.development import check_local_request, load_dev_user
from ingress.auth.origins import Origins
from ingress.auth.revocation import RevocationChecker
from ingress.auth.signed_tokens import (
    GUEST_PREFIX,
    GUEST_TOKEN_PREFIX,
    SESSION_PREFIX,
    EmbedPass,
    EmbedTickets,
    GuestPass,
    Guests,
    Ticket,
    Tickets,
)
from ingress.auth.tokens import Claims, TokenVerifier
from ingress.errors import absent, unauthorized

__all__ = ["AuthGate", "AuthMethods", "Caller", "CallerOf", "Me", "MeInBody", "load_caller", "save_caller"]
_SCOPE_KEY = "everturn.caller"


@dataclass(frozen=True, slots=True)
class AuthMethods:
    """The authentication methods in addition to the issuer's tokens. All return a Caller, which passes the same
    checks."""

    revocation: RevocationChecker
    guests: Guests
    tickets: Tickets
    origins: Origins
    embedding: EmbedTickets


class AuthGate:
    """Authenticates requests. An invalid credential is 401, never anonymous; without one only development mode is
    open."""

    def __init__(
        self, *, development: bool, verifier: TokenVerifier | None, methods: AuthMethods, clock: Clock
    ) -> None:
        self._development = development
        self._verifier = verifier
        self._methods = methods
        self._clock = clock

    @property
    def origins(self) -> Origins:
        """The origins that can use this server."""
        return self._methods.origins

    async def authenticate(self, headers: Headers, *, tenant: str, project: str) -> Caller:
        """The caller of an HTTP request, from its Authorization header.

        Raises 401 for a missing or invalid credential, 403 from the development checks, 404 for a foreign tenant.
        """
        return await self.authenticate_token(_read_bearer(headers), headers, tenant=tenant, project=project)

    async def load_owner(self, headers: Headers) -> Principal:
        """The owner of the credential, before tenant and project are known; only keys and our own tokens already name
        them.

        Raises 401, and 403 from the development checks.
        """
        token = _read_bearer(headers)
        if token is None or token.startswith((KEY_PREFIX, GUEST_TOKEN_PREFIX, SESSION_PREFIX)):
            return (await self._resolve(token, headers, "", "")).principal
        claims = await self._verify(token)
        return Principal("", "", claims.user_id, claims.roles, claims.person)

    async def authenticate_token(self, token: str | None, headers: Headers, *, tenant: str, project: str) -> Caller:
        """The caller with this token: an API key, a guest token, or a token of the issuer. Raises as `authenticate`."""
        caller = await self._resolve(token, headers, tenant, project)
        _check_scope(caller.principal, tenant, project)
        await self._methods.revocation.check(caller)
        return caller

    async def authenticate_socket(self, token: str | None, headers: Headers, *, tenant: str, project: str) -> Caller:
        """The caller of a socket, whose token arrives in its first message; rejects foreign pages (403)."""
        self._methods.origins.check_page(headers)
        return await self.authenticate_token(token, headers, tenant=tenant, project=project)

    async def authenticate_ticket(
        self, ticket: str, headers: Headers, *, tenant: str, project: str, conversation_id: str
    ) -> Caller:
        """The caller that a ticket for this conversation's stream represents. Raises as `authenticate`."""
        if headers.getlist("authorization"):
            raise unauthorized("Send a ticket or an Authorization header, not both.")
        caller = self._methods.tickets.check(ticket, tenant=tenant, project=project, conversation_id=conversation_id)
        if caller.proof.kind == "local":
            self._check_local(headers)
        await self.recheck(caller)
        return caller

    async def authenticate_embedding(self, headers: Headers) -> EmbedPass:
        """What the ticket in the Authorization header opens. Raises as `authenticate`."""
        opened = self._methods.embedding.check(_read_bearer(headers) or "")
        await self._check_embedded(opened.caller, headers)
        return opened

    def read_embed_ticket(self, ticket: str) -> EmbedPass:
        """What a ticket in a URL opens; its caller is not checked again. Raises 401."""
        return self._methods.embedding.check(ticket)

    def build_embed_session(self, caller: Caller) -> Ticket:
        """Build the bearer token of an embedded chat."""
        return self._methods.embedding.build_session(caller)

    async def _check_embedded(self, caller: Caller, headers: Headers) -> None:
        if caller.proof.kind == "local":
            self._check_local(headers)
        await self.recheck(caller)

    def build_visitor(self, caller: Caller, visitor: str | None) -> Caller:
        """A guest whom the caller knows as `visitor`; a new one for None. Raises 403 if this project accepts no
        guests."""
        who = caller.principal
        known_as = None if visitor is None else "\0".join((who.tenant, who.project, who.user_id, visitor))
        return self._methods.guests.build_visitor(who.tenant, who.project, known_as)

    def build_embed_ticket(self, caller: Caller, bundle_id: str, origin: str) -> Ticket:
        """Build a ticket for an embedded chat of this caller."""
        return self._methods.embedding.build(caller, bundle_id, origin)

    async def recheck(self, caller: Caller) -> None:
        """Check that an admitted caller is still allowed. Raises 401, and Unavailable if that can't be determined
        now."""
        if caller.expires_at is not None and caller.expires_at <= self._clock.now().timestamp():
            raise unauthorized("The credential has expired.")
        if caller.proof.kind == "guest" and not self._methods.guests.accepts(caller.principal):
            raise unauthorized("This server no longer accepts guests.")
        await self._methods.revocation.check(caller)

    def admit_guest(self, headers: Headers, *, tenant: str, project: str, address: str = "") -> GuestPass:
        """Create a guest. Raises 403, also from the development checks, 404 and 429."""
        if self._development:
            check_local_request(headers)
        return self._methods.guests.admit(tenant, project, address)

    def check_guests(self, headers: Headers, *, tenant: str, project: str) -> None:
        """Check that guests are allowed here. Raises 403, also from the development checks, and 404."""
        if self._development:
            check_local_request(headers)
        self._methods.guests.check_open(tenant, project)

    def build_ticket(self, caller: Caller, conversation_id: ConversationId) -> Ticket:
        """Build a ticket for a stream of the caller."""
        return self._methods.tickets.build(caller, conversation_id)

    async def _resolve(self, token: str | None, headers: Headers, tenant: str, project: str) -> Caller:
        if token is None:
            self._check_local(headers)
            user = load_dev_user(headers)
            return Caller(Principal(tenant, project, user, person=f"local:{user}"), None, Proof("local"))
        if token.startswith(KEY_PREFIX):
            return await self._methods.revocation.load_key_caller(token)
        if token.startswith(SESSION_PREFIX):
            caller = self._methods.embedding.check_session(token)
            await self._check_embedded(caller, headers)
            return caller
        if token.startswith(GUEST_TOKEN_PREFIX):
            return self._methods.guests.check(token)
        return _build_caller(await self._verify(token), tenant, project)

    async def _verify(self, token: str) -> Claims:
        if self._verifier is None:
            raise unauthorized("This server does not accept tokens.")
        claims = await self._verifier.verify(token)
        if claims.user_id.startswith(GUEST_PREFIX):
            raise unauthorized("The token's subject is not a valid user name.")
        return claims

    def _check_local(self, headers: Headers) -> None:
        if not self._development:
            raise unauthorized("Send Authorization: Bearer <token>.")
        check_local_request(headers)


def _read_bearer(headers: Headers) -> str | None:
    """The token of the Authorization header; None without one. Raises 401 for anything else in it."""
    credentials = headers.getlist("authorization")
    if not credentials:
        return None
    scheme, _, token = credentials[0].partition(" ")
    if len(credentials) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise unauthorized("Send one Authorization header with one bearer token.")
    return token.strip()


def _build_caller(claims: Claims, tenant: str, project: str) -> Caller:
    """The caller of an issuer's token. Raises 404 for a tenant or project that the token does not cover."""
    if claims.tenants is not None and tenant not in claims.tenants:
        raise absent()
    if claims.projects is not None and project not in claims.projects:
        raise absent()
    principal = Principal(tenant, project, claims.user_id, claims.roles, claims.person)
    return Caller(principal, claims.expires_at, Proof("token", claims.issued_at))


def _check_scope(principal: Principal, tenant: str, project: str) -> None:
    if (principal.tenant, principal.project) != (tenant, project):
        raise absent()
    if not (is_scope_name(tenant) and is_scope_name(project)):
        raise absent()


def save_caller(request: Request, caller: Caller) -> None:
    """Store the authenticated caller in its request's scope."""
    request.scope[_SCOPE_KEY] = caller


async def load_caller(
    request: Request,
    tenant: Annotated[str, Path(description="The tenant.", examples=["default"])],
    project: Annotated[str, Path(description="The project.", examples=["default"])],
) -> Caller:
    """The caller of an admitted request. Fails on a route without admission, because there is none."""
    caller = cast(Caller, request.scope[_SCOPE_KEY])
    if (caller.principal.tenant, caller.principal.project) != (tenant, project):
        raise absent()
    return caller


async def load_principal_in_body(request: Request) -> Principal:
    """The principal of a request with tenant and project in its body; its route has already compared them."""
    return cast(Caller, request.scope[_SCOPE_KEY]).principal


async def load_principal(caller: Annotated[Caller, Depends(load_caller)]) -> Principal:
    """The principal of an admitted request."""
    return caller.principal


CallerOf = Annotated[Caller, Depends(load_caller)]
Me = Annotated[Principal, Depends(load_principal)]
MeInBody = Annotated[Principal, Depends(load_principal_in_body)]
