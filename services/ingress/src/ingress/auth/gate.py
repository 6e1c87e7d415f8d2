"""Who asks: the one place where a request gets its principal."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Path, Request
from starlette.datastructures import Headers

from everturn.model.identity import Principal
from ingress.auth.development import check_local_request, load_dev_user
from ingress.auth.names import is_scope_name
from ingress.auth.tokens import Claims, TokenVerifier
from ingress.errors import absent, unauthorized

_SCOPE_KEY = "everturn.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal and until when (Unix time) its credential is good; None for ever."""

    principal: Principal
    expires_at: float | None = None


class AuthGate:
    """Authenticates requests: by bearer token, or in development mode by being local."""

    def __init__(self, *, development: bool, verifier: TokenVerifier | None) -> None:
        self._development = development
        self._verifier = verifier

    async def authenticate(self, headers: Headers, *, tenant: str, project: str) -> Caller:
        """Raises 401 for a missing or bad credential, 403 from the development checks, 404 for a foreign tenant."""
        credentials = headers.getlist("authorization")
        if not credentials and self._development:
            check_local_request(headers)
            caller = Caller(Principal(tenant, project, load_dev_user(headers)))
        else:
            claims = await self._verify(credentials)
            caller = Caller(Principal(tenant, project, claims.user_id, claims.roles), claims.expires_at)
            _check_scope(claims, tenant, project)
        if not (is_scope_name(tenant) and is_scope_name(project)):
            raise absent()
        return caller

    async def _verify(self, credentials: list[str]) -> Claims:
        if not credentials:
            raise unauthorized("Send Authorization: Bearer <token>.")
        scheme, _, token = credentials[0].partition(" ")
        if len(credentials) > 1 or scheme.lower() != "bearer" or not token.strip():
            raise unauthorized("Send one Authorization header with one bearer token.")
        if self._verifier is None:
            raise unauthorized("This server verifies no tokens.")
        return await self._verifier.verify(token.strip())


def _check_scope(claims: Claims, tenant: str, project: str) -> None:
    if claims.tenants is not None and tenant not in claims.tenants:
        raise absent()
    if claims.projects is not None and project not in claims.projects:
        raise absent()


def save_caller(request: Request, caller: Caller) -> None:
    """Keep the authenticated caller with its request."""
    request.scope[_SCOPE_KEY] = caller


def load_caller(
    request: Request,
    tenant: Annotated[str, Path(description="The tenant.", examples=["default"])],
    project: Annotated[str, Path(description="The project.", examples=["default"])],
) -> Caller:
    """The caller of an admitted request; a route that was not admitted has none, and fails."""
    caller = cast(Caller, request.scope[_SCOPE_KEY])
    if (caller.principal.tenant, caller.principal.project) != (tenant, project):
        raise absent()
    return caller


def load_principal(caller: Annotated[Caller, Depends(load_caller)]) -> Principal:
    """The principal of an admitted request."""
    return caller.principal


CallerOf = Annotated[Caller, Depends(load_caller)]
Me = Annotated[Principal, Depends(load_principal)]
