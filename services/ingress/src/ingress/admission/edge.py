"""The outermost layer: header caps, metrics, rate limit fields, and the one handler of unexpected errors."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from structlog.contextvars import bound_contextvars

from everturn.core.ids import is_id
from everturn.core.tracing import NO_TRACING, Span, SpanLinks, TraceContext, Tracing, try_parse_context
from ingress.admission.limits import load_drawn
from ingress.errors import ProblemError, headers_too_large, internal_error, malformed, problem_response
from ingress.metrics import IngressMetrics

_log = structlog.get_logger(__name__)

_UNTRACED: Final = ("/healthz", "/readyz", "/metrics", "/socket.io", "/widgets/")
"""Probes arrive every few seconds; a socket is not one request; the path of a widget contains a ticket."""
_STREAM: Final = "/events"
"""A stream lasts for hours, and its span would be reported only at its end."""
_SCOPED: Final = re.compile(
    r"/(?:bundles|collections|conversations|files|guests|limits|mcp|mcp-connections(?!/callback/)|memory|skills)"
    r"/([^/]{1,64})/[^/]{1,64}(?:/([^/]{1,64}))?"
)
"""Paths with a tenant and a project, and what follows. Others can contain a ticket, such as those of widgets."""
_SERVER_ERROR: Final = 500
_MAX_PATH_CHARS: Final = 256

MAX_HEADER_BYTES = 32_768
MAX_HEADERS = 100
PIECE_BYTES = 65_536
"""How much of a body is sent at once."""
MAX_CONTENT_TYPE_BYTES = 300
"""Enough for a boundary and a charset. The time of the parameter parser is quadratic in their length: 32 kB of `;`
after a quotation mark took 0.9 s on the event loop."""
_SINGLE = frozenset({b"content-type", b"content-encoding", b"content-length", b"transfer-encoding"})
"""Headers that define how a body is read must not be repeated, because two readers could interpret them differently."""


def try_caller(scope: Scope) -> TraceContext | None:
    """The caller's span from the header `traceparent`, if it is sent exactly once."""
    values = [value for name, value in scope["headers"] if name == b"traceparent"]
    return try_parse_context(values[0].decode("latin-1")) if len(values) == 1 else None


def open_span(tracing: Tracing, scope: Scope) -> AbstractContextManager[Span]:
    """Open the span of an HTTP request, named by its method until the route is known. It has the path without the
    query."""
    path: str = scope["path"]
    if path.startswith(_UNTRACED) or path.endswith(_STREAM):
        return NO_TRACING.span("", {})
    method = name_method(scope)
    links = SpanLinks(parent=try_caller(scope))
    attributes = {
        "http.request.method": "_OTHER" if method == "other" else method,
        "url.path": path[:_MAX_PATH_CHARS],
        "url.scheme": scope.get("scheme", "http"),
    }
    return tracing.span(method, attributes, kind="server", links=links)


def record_response(span: Span, *, method: str, route: str, status: int) -> None:
    """Record the response of the request."""
    span.rename(f"{method} {route}")
    span.note({"http.route": route, "http.response.status_code": status})
    if status >= _SERVER_ERROR:
        span.fail(str(status))


def find_log_names(scope: Scope, trace: TraceContext | None) -> dict[str, str]:
    """The log fields of a request. Tenant and conversation are the requested ones, allowed or not."""
    names = {"trace_id": trace.trace_id} if trace else {}
    match = _SCOPED.match(scope["path"])
    if match is not None:
        # Terminals interpret control characters, and the path is not validated yet.
        if match[1].isprintable():
            names["tenant"] = match[1]
        if match[2] and is_id(match[2], "conv"):
            names["conversation_id"] = match[2]
    return names


def name_method(scope: Scope) -> str:
    """One of the known methods, or `other`: a bounded set."""
    method = scope["method"]
    return method if method in {"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"} else "other"


class OuterMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: IngressMetrics,
        monotonic: Callable[[], float],
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._monotonic = monotonic
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with open_span(self._tracing, scope) as span:
            trace = self._tracing.current() or try_caller(scope)
            with bound_contextvars(**find_log_names(scope, trace)):
                watch = _Watch(scope, send, self._metrics, self._monotonic)
                await self._serve(scope, receive, watch)
                record_response(span, method=name_method(scope), route=watch.route(), status=watch.status)

    async def _serve(self, scope: Scope, receive: Receive, watch: "_Watch") -> None:
        refusal = try_refuse_headers(scope)
        try:
            if refusal:
                answer = problem_response(refusal)
                # The end of such a body is ambiguous, so nothing after it is read as a request.
                answer.headers["Connection"] = "close"
                await answer(scope, receive, watch.send)
            else:
                await self._app(_without_cookies(scope), receive, watch.send)
        except Exception:
            self._metrics.unhandled.inc()
            _log.exception("Unhandled error", route=watch.route())
            if watch.status:
                raise
            await problem_response(internal_error())(scope, receive, watch.send)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = try_refuse_headers(scope)
        if refusal:
            await WebSocket(scope, receive, send).send_denial_response(problem_response(refusal))
            return
        try:
            await self._app(_without_cookies(scope), receive, send)
        except Exception:
            self._metrics.unhandled.inc()
            _log.exception("Unhandled error in a socket")
            raise


def try_refuse_headers(scope: Scope) -> ProblemError | None:
    """A 431 problem for too many or too large headers, a 400 for conflicting headers of the body."""
    headers = scope["headers"]
    size = len(scope["path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in headers)
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        return headers_too_large(
            f"A request can have at most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes of URL and headers."
        )
    if any(name == b"content-type" and len(value) > MAX_CONTENT_TYPE_BYTES for name, value in headers):
        return headers_too_large(f"The Content-Type header is longer than {MAX_CONTENT_TYPE_BYTES} bytes.")
    described = [name for name, _ in headers if name in _SINGLE]
    if len(described) > len({*described}):
        return malformed("The headers for the type, encoding and length of the body must not be repeated.")
    if b"transfer-encoding" in described and b"content-length" in described:
        return malformed("Send either Content-Length or Transfer-Encoding, not both.")
    return None


def _without_cookies(scope: Scope) -> Scope:
    """Remove cookies: nothing here reads them, but FastAPI parses them for every endpoint, before authentication.
    Before Python 3.11.10 the time of that parser is quadratic in the length of a quoted value: 30 kB of `\\"` took 1.5
    s on the event loop.

    Returns the same object, because other layers read the matched route from it.
    """
    scope["headers"] = [header for header in scope["headers"] if header[0] != b"cookie"]
    return scope


class _Watch:
    """Counts one request when its response begins."""

    def __init__(self, scope: Scope, send: Send, metrics: IngressMetrics, monotonic: Callable[[], float]) -> None:
        self.status = 0
        """Of the response; 0 before it begins."""
        self._scope = scope
        self._send = send
        self._metrics = metrics
        self._monotonic = monotonic
        self._start = monotonic()

    def route(self) -> str:
        """The route's template: a bounded set, unlike paths."""
        path = getattr(self._scope.get("route"), "path", None)
        return path if isinstance(path, str) else "none"

    async def send(self, message: Message) -> None:
        """Send a message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            await self._settle(message)
            route, status = self.route(), str(self.status)
            self._metrics.requests.labels(method=name_method(self._scope), route=route, status=status).inc()
            self._metrics.seconds.labels(route=route).observe(self._monotonic() - self._start)
        body: bytes = message.get("body", b"")
        for at in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
            # The server waits between pieces until the client has received what was sent. A large body in one piece
            # would stay in the server's buffer after its slot was already released.
            await self._send({**message, "body": body[at : at + PIECE_BYTES], "more_body": True})
        if len(body) > PIECE_BYTES:
            message = {**message, "body": body[(len(body) - 1) // PIECE_BYTES * PIECE_BYTES :]}
        await self._send(message)

    async def _settle(self, message: Message) -> None:
        drawn = load_drawn(self._scope)
        if drawn is not None:
            await drawn.settle(message["status"])
            message["headers"] = [*message.get("headers", ()), *drawn.fields]
