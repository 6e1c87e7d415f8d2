"""What a request is in traces and in logs: its span, and the names that every log line of it carries."""

import re
from contextlib import AbstractContextManager
from typing import Final

from starlette.types import Scope

from everturn.model.ids import is_id
from everturn.telemetry.tracing.context import TraceContext, try_parse_context
from everturn.telemetry.tracing.spans import NO_TRACING, Span, SpanPlace, Tracing

_UNTRACED: Final = ("/healthz", "/readyz", "/metrics", "/socket.io")
"""Probes ask every few seconds; a socket is no request."""
_STREAM: Final = "/events"
"""Lasts for hours, and would be told when it is over only."""
_CONVERSATION: Final = re.compile(r"/conversations/([^/]{1,64})/[^/]{1,64}(?:/([^/]{1,64}))?")
_SERVER_ERROR: Final = 500
_MAX_PATH_CHARS: Final = 256


def try_caller(scope: Scope) -> TraceContext | None:
    """The caller's span, from the header `traceparent`, where it is said once."""
    said = [value for name, value in scope["headers"] if name == b"traceparent"]
    return try_parse_context(said[0].decode("latin-1")) if len(said) == 1 else None


def open_span(tracing: Tracing, scope: Scope) -> AbstractContextManager[Span]:
    """The span of an HTTP request, named by its method until the route is known. It has the path without the query."""
    path: str = scope["path"]
    if path.startswith(_UNTRACED) or path.endswith(_STREAM):
        return NO_TRACING.span("", {})
    method = name_method(scope)
    place = SpanPlace(parent=try_caller(scope))
    attributes = {
        "http.request.method": "_OTHER" if method == "other" else method,
        "url.path": path[:_MAX_PATH_CHARS],
        "url.scheme": scope.get("scheme", "http"),
    }
    return tracing.span(method, attributes, kind="server", place=place)


def tell_answer(span: Span, *, method: str, route: str, status: int) -> None:
    """What came of the request."""
    span.rename(f"{method} {route}")
    span.note({"http.route": route, "http.response.status_code": status})
    if status >= _SERVER_ERROR:
        span.fail(str(status))


def find_log_names(scope: Scope, trace: TraceContext | None) -> dict[str, str]:
    """What the log lines of a request carry. Tenant and conversation are those it asks for, allowed or not."""
    names = {"trace_id": trace.trace_id} if trace else {}
    asked = _CONVERSATION.match(scope["path"])
    if asked is not None:
        # A terminal would obey control characters, and anybody may ask for anything.
        if asked[1].isprintable():
            names["tenant"] = asked[1]
        if asked[2] and is_id(asked[2], "conv"):
            names["conversation_id"] = asked[2]
    return names


def name_method(scope: Scope) -> str:
    """One of the known methods, or `other`: a bounded set."""
    method = scope["method"]
    return method if method in {"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"} else "other"
