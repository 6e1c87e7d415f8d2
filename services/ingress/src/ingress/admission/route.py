"""Admission: the checks that every request passes before its endpoint runs and its body is read, and the reading of the
body."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, nullcontext
from email.message import Message
from typing import Any, cast

from fastapi import Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from ingress.admission.connections import RECOGNIZED_KEY
from ingress.admission.limits import (
    BODY_BYTES_PER_S,
    BODY_GRACE_S,
    BODY_TIMEOUT_S,
    BodyHold,
    is_write,
    load_request_limits,
)
from ingress.admission.strict_json import BadJson, load_strict
from ingress.auth.gate import AuthGate, Caller, save_caller
from ingress.errors import malformed, too_large, too_slow, unauthorized, unprocessable, unsupported
from ingress.fields import MAX_ERRORS, MAX_NAME_CHARS

_CAP_KEY = "everturn.max_body_bytes"
_HOLD_KEY = "everturn.body_hold"

SMALL_BODY_BYTES = 262_144
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
_NOT_COMPRESSED = frozenset({"identity"})


class AdmittedRequest(Request):
    """A request whose body has a size cap from its route and must keep arriving.

    It can last `body_timeout_s`, and lag behind BODY_BYTES_PER_S by `grace_s`.
    """

    idle_timeout_s: float = 30
    body_timeout_s: float = BODY_TIMEOUT_S
    grace_s: float = BODY_GRACE_S

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives. Raises a 413 problem at the first byte above the cap, whatever Content-Length
        said."""
        cap, received = self.scope[_CAP_KEY], 0
        hold: BodyHold | None = self.scope.get(_HOLD_KEY)
        began = asyncio.get_running_loop().time()
        chunks = super().stream()
        with hold.reading() if hold is not None else nullcontext():
            async with aclosing(chunks):
                while (chunk := await self._next_chunk(chunks, began, received)) is not None:
                    received += len(chunk)
                    if received > cap:
                        raise too_large(f"The body is larger than {cap} bytes.")
                    if hold is not None:
                        hold.grow(len(chunk))
                    yield chunk

    async def _next_chunk(self, chunks: AsyncGenerator[bytes, None], began: float, received: int) -> bytes | None:
        """Raises 408 when the body is too slow; `received` bytes arrived since `began`, in loop time."""
        now = asyncio.get_running_loop().time()
        waits = {
            began + self.body_timeout_s: f"The body was not complete after {self.body_timeout_s:g} s.",
            began + self.grace_s + received / BODY_BYTES_PER_S: f"The body is slower than {BODY_BYTES_PER_S} bytes/s.",
            now + self.idle_timeout_s: f"No bytes of the body arrived for {self.idle_timeout_s:g} s.",
        }
        give_up = min(waits)
        try:
            async with asyncio.timeout_at(give_up):
                return await anext(chunks, None)
        except TimeoutError as error:
            raise too_slow(waits[give_up]) from error
        except ClientDisconnect as error:
            raise malformed("The client disconnected before the body was complete.") from error

    def lower_limit(self, max_body_bytes: int) -> None:
        """Lower the cap of this body, once more is known about it. Raises a 413 problem if its length exceeds the new
        cap."""
        self.scope[_CAP_KEY] = min(self.scope[_CAP_KEY], max_body_bytes)
        check_length(self, self.scope[_CAP_KEY])

    async def json(self) -> Any:
        """The body as strict JSON."""
        if not hasattr(self, "_strict_json"):
            self._strict_json = await load_json(await self.body(), "The body")
        return self._strict_json


def admit_request(
    request: Request,
    *,
    max_body_bytes: int,
    hold: BodyHold | None = None,
    encodings: frozenset[str] = _NOT_COMPRESSED,
) -> AdmittedRequest:
    """Wrap a request, after the checks that don't need its body. `hold` counts its bytes until `release_body`; the
    endpoint undoes other `encodings` of the body than `identity`."""
    request.scope[_CAP_KEY] = max_body_bytes
    announced = check_length(request, max_body_bytes)
    if hold is not None:
        hold.check_announced(announced)
        request.scope[_HOLD_KEY] = hold
    if request.headers.get("content-encoding", "identity").lower() not in encodings:
        raise unsupported(
            "Compressed bodies are not accepted."
            if encodings == _NOT_COMPRESSED
            else f"Bodies can be compressed with {' or '.join(sorted(encodings - _NOT_COMPRESSED))} only."
        )
    return AdmittedRequest(request.scope, request.receive)


def release_body(request: Request) -> None:
    """Stop counting the request's bytes, once it has ended."""
    hold: BodyHold | None = request.scope.get(_HOLD_KEY)
    if hold is not None:
        hold.release()


def check_length(request: Request, max_body_bytes: int) -> int:
    """The announced length, 0 without one. Rejects one above the cap before reading (413)."""
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and len(announced) < 20 and int(announced) <= max_body_bytes:
        return int(announced)
    raise too_large(f"The body is larger than {max_body_bytes} bytes.")


def check_json_type(request: Request) -> None:
    """Reject a body that is not declared as JSON (415)."""
    if media_type(request) != "application/json":
        raise unsupported("Send the body as application/json.")
    check_charset(request)


def check_charset(request: Request) -> None:
    """Reject JSON with another declared charset (415): decoded as UTF-8 it would be different text."""
    if str(_content_type(request).get_param("charset", "utf-8")).lower() != "utf-8":
        raise unsupported("JSON must be encoded as UTF-8.")


def media_type(request: Request) -> str:
    """The media type of the body without its parameters, in lower case."""
    return _content_type(request).get_content_type()


def _content_type(request: Request) -> Message:
    message = Message()
    message["content-type"] = request.headers.get("content-type", "application/octet-stream")
    return message


async def load_json(raw: bytes, what: str) -> Any:
    """Strict JSON, or a 400 problem that says what is wrong with `what`."""
    try:
        return await load_strict(raw)
    except BadJson as error:
        raise malformed(f"{what} is not valid JSON. {error.detail}") from error


class StrictRoute(APIRoute):
    """A route that rejects query parameters which neither its endpoint nor its dependencies declare."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = super().get_route_handler()
        fields = get_flat_params(self.dependant)
        allowed = frozenset(field.alias for field in fields if isinstance(field.field_info, Query))

        async def handle(request: Request) -> Response:
            check_query(request, allowed)
            return await endpoint(request)

        return handle


def check_query(request: Request, allowed: frozenset[str]) -> None:
    """Reject unknown query parameters (422): a misspelt one would silently keep its default."""
    unknown = [name[:MAX_NAME_CHARS] for name in request.query_params if name not in allowed]
    if not unknown:
        return
    hint = f"allowed: {', '.join(sorted(allowed))}" if allowed else "this endpoint accepts no query parameters"
    errors = [{"field": f"query.{name}", "message": f"Unknown parameter; {hint}"} for name in unknown[:MAX_ERRORS]]
    raise unprocessable(f"{errors[0]['field']}: {errors[0]['message']}", errors=errors)


class AdmittedRoute(StrictRoute):
    """A route of JSON endpoints: authenticated, capped, strict. `encodings` are those that a body can have."""

    encodings = _NOT_COMPRESSED

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
        gate, limits = cast(AuthGate, request.app.state.auth), load_request_limits(request)
        with limits.authenticating(request):
            caller = await self.authenticate(request, gate)
        _recognize(request, caller)
        await limits.admit(request, caller.principal, write=is_write(request.method, self.path))
        hold = limits.bodies.open(caller.principal)
        admitted = admit_request(
            request, max_body_bytes=self.max_body_bytes_of(request), hold=hold, encodings=self.encodings
        )
        self.check_type(admitted)
        return admitted

    async def authenticate(self, request: Request, gate: AuthGate) -> Caller:
        """Return the caller. Raises problems: 401, 403, 404."""
        path = request.path_params
        return await gate.authenticate(request.headers, tenant=path["tenant"], project=path["project"])

    def max_body_bytes_of(self, request: Request) -> int:
        """The largest body of this route."""
        return SMALL_BODY_BYTES

    def check_type(self, request: Request) -> None:
        """Reject content types that this route does not read (415)."""
        if self.body_field is not None and request.method in _BODY_METHODS:
            check_json_type(request)


def _recognize(request: Request, caller: Caller) -> None:
    """Save the caller, and mark the connection as authenticated."""
    save_caller(request, caller)
    recognized = cast(Callable[[], None] | None, request.scope.get(RECOGNIZED_KEY))
    if recognized is not None:
        recognized()


class BodyScopedRoute(AdmittedRoute):
    """A route with tenant and project in its body, which is small and read after the credential was verified."""

    def read_scope(self, body: Any) -> tuple[str, str]:
        """Read tenant and project from the body. Raises a 422 problem."""
        raise NotImplementedError

    async def admit(self, request: Request) -> AdmittedRequest:
        """Admit in another order than other routes: the credential, its rate, the body, then access to its tenant and
        project."""
        gate, limits = cast(AuthGate, request.app.state.auth), load_request_limits(request)
        with limits.authenticating(request):
            owner = await gate.load_owner(request.headers)
        await limits.admit(request, owner, write=is_write(request.method, self.path))
        admitted = admit_request(request, max_body_bytes=SMALL_BODY_BYTES, hold=limits.bodies.open(owner))
        try:
            self.check_type(admitted)
            tenant, project = self.read_scope(await admitted.json())
            with limits.authenticating(request):
                caller = await gate.authenticate(request.headers, tenant=tenant, project=project)
        except BaseException:
            release_body(admitted)
            raise
        _recognize(request, caller)
        return admitted


class SubmitRoute(AdmittedRoute):
    """A route that accepts messages with files: larger bodies; the submission reader checks their type."""

    def max_body_bytes_of(self, request: Request) -> int:
        return cast(int, request.app.state.settings.message_max_bytes)


class StreamRoute(AdmittedRoute):
    """The route of a conversation's events: the only one that a ticket in the URL opens."""

    async def authenticate(self, request: Request, gate: AuthGate) -> Caller:
        """Return the caller, by ticket if there is one."""
        tickets = request.query_params.getlist("ticket")
        if not tickets:
            return await super().authenticate(request, gate)
        if len(tickets) > 1:
            raise unauthorized("Send exactly one ticket.")
        path = request.path_params
        return await gate.authenticate_ticket(
            tickets[0],
            request.headers,
            tenant=path["tenant"],
            project=path["project"],
            conversation_id=path["conversation_id"],
        )
