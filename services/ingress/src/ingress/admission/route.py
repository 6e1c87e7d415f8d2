"""Admission: the order of checks that every request passes before its endpoint runs and its body is read."""

from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastapi import Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute

from ingress.admission.limits.addresses import RECOGNIZED_KEY
from ingress.admission.limits.front import load_front
from ingress.admission.limits.rates import is_write
from ingress.admission.request import AdmittedRequest, admit_request, check_json_type, release_body
from ingress.admission.validation import MAX_ERRORS, MAX_NAME_CHARS
from ingress.auth.gate import AuthGate, Caller, save_caller
from ingress.errors import unauthorized, unprocessable

SMALL_BODY_BYTES = 262_144
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})


class StrictRoute(APIRoute):
    """A route that refuses query parameters which neither its endpoint nor a dependency of it declares."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = super().get_route_handler()
        fields = get_flat_params(self.dependant)
        allowed = frozenset(field.alias for field in fields if isinstance(field.field_info, Query))

        async def handle(request: Request) -> Response:
            check_query(request, allowed)
            return await endpoint(request)

        return handle


def check_query(request: Request, allowed: frozenset[str]) -> None:
    """Refuse query parameters with other names (422): a misspelt one would leave its default in force."""
    unknown = [name[:MAX_NAME_CHARS] for name in request.query_params if name not in allowed]
    if not unknown:
        return
    takes = f"allowed: {', '.join(sorted(allowed))}" if allowed else "this endpoint accepts no query parameters"
    errors = [{"field": f"query.{name}", "message": f"Unknown parameter; {takes}"} for name in unknown[:MAX_ERRORS]]
    raise unprocessable(f"{errors[0]['field']}: {errors[0]['message']}", errors=errors)


class AdmittedRoute(StrictRoute):
    """A route of JSON endpoints: authenticated, capped, strict."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = super().get_route_handler()

        async def handle(request: Request) -> Response:
            admitted = await self.admit(request)
            try:
                return await endpoint(admitted)
            finally:
                release_body(admitted)

        return handle

    async def admit(self, request: Request) -> AdmittedRequest:
        """Authenticate, then check what is known without the body. Raises problems: 401, 403, 404, 413, 415, 429."""
        gate, front = cast(AuthGate, request.app.state.auth), load_front(request)
        with front.authenticating(request):
            caller = await self.authenticate(request, gate)
        _recognize(request, caller)
        await front.admit(request, caller.principal, write=is_write(request.method, self.path))
        hold = front.bodies.open(caller.principal)
        admitted = admit_request(request, max_body_bytes=self.max_body_bytes_of(request), hold=hold)
        self.check_type(admitted)
        return admitted

    async def authenticate(self, request: Request, gate: AuthGate) -> Caller:
        """Who asks. Raises problems: 401, 403, 404."""
        path = request.path_params
        return await gate.authenticate(request.headers, tenant=path["tenant"], project=path["project"])

    def max_body_bytes_of(self, request: Request) -> int:
        """How large this route's bodies may be."""
        return SMALL_BODY_BYTES

    def check_type(self, request: Request) -> None:
        """Refuse other types of content than this route reads (415)."""
        if self.body_field is not None and request.method in _BODY_METHODS:
            check_json_type(request)


def _recognize(request: Request, caller: Caller) -> None:
    """Keep the caller, and tell the connection that it serves somebody who is known."""
    save_caller(request, caller)
    recognized = cast(Callable[[], None] | None, request.scope.get(RECOGNIZED_KEY))
    if recognized is not None:
        recognized()


class BodyScopedRoute(AdmittedRoute):
    """A route whose tenant and project stand in its body, which is small and read once the credential is known good."""

    def read_scope(self, body: Any) -> tuple[str, str]:
        """Tenant and project by the body. Raises a 422 problem."""
        raise NotImplementedError

    async def admit(self, request: Request) -> AdmittedRequest:
        """As of all routes, in another order: the credential, its rate, the body, then whether they go together."""
        gate, front = cast(AuthGate, request.app.state.auth), load_front(request)
        with front.authenticating(request):
            owner = await gate.load_owner(request.headers)
        await front.admit(request, owner, write=is_write(request.method, self.path))
        admitted = admit_request(request, max_body_bytes=SMALL_BODY_BYTES, hold=front.bodies.open(owner))
        try:
            self.check_type(admitted)
            tenant, project = self.read_scope(await admitted.json())
            with front.authenticating(request):
                caller = await gate.authenticate(request.headers, tenant=tenant, project=project)
        except BaseException:
            release_body(admitted)
            raise
        _recognize(request, caller)
        return admitted


class SubmitRoute(AdmittedRoute):
    """A route that takes messages with files: larger bodies; the submission reader checks their type."""

    def max_body_bytes_of(self, request: Request) -> int:
        return cast(int, request.app.state.settings.message_max_bytes)


class StreamRoute(AdmittedRoute):
    """The route of a conversation's events: the only one that a ticket in the address opens."""

    async def authenticate(self, request: Request, gate: AuthGate) -> Caller:
        """Who asks, by ticket where there is one."""
        tickets = request.query_params.getlist("ticket")
        if not tickets:
            return await super().authenticate(request, gate)
        if len(tickets) > 1:
            raise unauthorized("Send one ticket.")
        path = request.path_params
        return await gate.authenticate_ticket(
            tickets[0],
            request.headers,
            tenant=path["tenant"],
            project=path["project"],
            conversation_id=path["conversation_id"],
        )
