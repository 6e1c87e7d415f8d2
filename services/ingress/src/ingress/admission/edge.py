"""The outermost layer: header caps, counting, rate fields, and the one place where an unexpected error is caught."""

from collections.abc import Callable

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from structlog.contextvars import bound_contextvars

from everturn.model.problems import problem
from everturn.telemetry.tracing.spans import NO_TRACING, Tracing
from ingress.admission.limits.front import load_drawn
from ingress.admission.metrics import IngressMetrics
from ingress.admission.request_span import find_log_names, name_method, open_span, tell_answer, try_caller
from ingress.errors import ProblemError, headers_too_large, malformed, problem_response

MAX_HEADER_BYTES = 32_768
MAX_HEADERS = 100
PIECE_BYTES = 65_536
"""Of a body that is sent at once."""
MAX_CONTENT_TYPE_BYTES = 300
"""Room for a boundary and a charset. The parser of its parameters takes time with the square of their length: 32 kB of
`;` after a quotation mark cost 0.9 s on the event loop."""
_SINGLE = frozenset({b"content-type", b"content-encoding", b"content-length", b"transfer-encoding"})
"""What says how a body is to be read stands there once: two readers must not take it for two different things."""

_log = structlog.get_logger(__name__)


class Edge:
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
                tell_answer(span, method=name_method(scope), route=watch.route(), status=watch.status)

    async def _serve(self, scope: Scope, receive: Receive, watch: "_Watch") -> None:
        refusal = try_refuse_headers(scope)
        try:
            if refusal:
                answer = problem_response(refusal)
                # Where such a body ends is not known for sure, so nothing behind it is read as a request.
                answer.headers["Connection"] = "close"
                await answer(scope, receive, watch.send)
            else:
                await self._app(_without_cookies(scope), receive, watch.send)
        except Exception:
            self._metrics.unhandled.inc()
            _log.exception("unhandled error", route=watch.route())
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
            _log.exception("unhandled error in a socket")
            raise


def try_refuse_headers(scope: Scope) -> ProblemError | None:
    """A 431 problem for too many or too large headers, a 400 for a body that is described twice."""
    headers = scope["headers"]
    size = len(scope["path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in headers)
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        return headers_too_large(
            f"A request can have at most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes of URL and headers."
        )
    if any(name == b"content-type" and len(value) > MAX_CONTENT_TYPE_BYTES for name, value in headers):
        return headers_too_large(f"The Content-Type header has more than {MAX_CONTENT_TYPE_BYTES} bytes.")
    described = [name for name, _ in headers if name in _SINGLE]
    if len(described) > len({*described}):
        return malformed("The headers for the type, encoding and length of the body must not be repeated.")
    if b"transfer-encoding" in described and b"content-length" in described:
        return malformed("Send either Content-Length or Transfer-Encoding, not both.")
    return None


def _without_cookies(scope: Scope) -> Scope:
    """Nothing here reads a cookie, but FastAPI parses them for every endpoint, before it asks who it is. The parser of
    Python before 3.11.10 takes time with the square of a quoted value: 30 kB of `\\"` cost 1.5 s on the event loop.

    The same object, because other layers read from it which route was taken.
    """
    scope["headers"] = [header for header in scope["headers"] if header[0] != b"cookie"]
    return scope


def internal_error() -> ProblemError:
    """A 500 problem that says nothing of the inside."""
    return ProblemError(problem("internal", "Something went wrong on our side", 500, "The error was logged."))


class _Watch:
    """Sees the response of one request begin, and counts it."""

    def __init__(self, scope: Scope, send: Send, metrics: IngressMetrics, monotonic: Callable[[], float]) -> None:
        self.status = 0
        """Of the response; 0 before it begins."""
        self._scope = scope
        self._send = send
        self._metrics = metrics
        self._monotonic = monotonic
        self._start = monotonic()

    def route(self) -> str:
        """The route's template; a bounded set, unlike paths."""
        path = getattr(self._scope.get("route"), "path", None)
        return path if isinstance(path, str) else "none"

    async def send(self, message: Message) -> None:
        """Pass a message of the response on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            await self._settle(message)
            route, status = self.route(), str(self.status)
            self._metrics.requests.labels(method=name_method(self._scope), route=route, status=status).inc()
            self._metrics.seconds.labels(route=route).observe(self._monotonic() - self._start)
        body: bytes = message.get("body", b"")
        for at in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
            # The server waits between pieces until the client has taken what was sent. A large body in one piece would
            # stand in the server's buffer, while whoever counts what is being sent believes that it is gone.
            await self._send({**message, "body": body[at : at + PIECE_BYTES], "more_body": True})
        if len(body) > PIECE_BYTES:
            message = {**message, "body": body[(len(body) - 1) // PIECE_BYTES * PIECE_BYTES :]}
        await self._send(message)

    async def _settle(self, message: Message) -> None:
        drawn = load_drawn(self._scope)
        if drawn is not None:
            await drawn.settle(message["status"])
            message["headers"] = [*message.get("headers", ()), *drawn.fields]
