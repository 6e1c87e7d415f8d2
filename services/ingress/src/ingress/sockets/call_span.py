"""What a call over a socket is in traces and in logs: a span of its own, and the names that its log lines carry."""

from collections.abc import Generator
from contextlib import contextmanager

from starlette.types import Scope
from structlog.contextvars import bound_contextvars

from everturn.model.ids import is_id
from everturn.telemetry.tracing.spans import Span, SpanPlace, Tracing
from ingress.admission.request_span import try_caller

_SERVER_ERROR = 500


@contextmanager
def open_call_span(
    tracing: Tracing, name: str, handshake: Scope, *, tenant: str, payload: tuple[object, ...]
) -> Generator[Span]:
    """The span of a call, as RPC conventions name it. `name` is one of the calls there are.

    A socket lives for hours, so each call is a trace of its own, linked to the span that the handshake named.
    """
    attributes = {"rpc.system.name": "socketio", "rpc.method": name}
    place = SpanPlace(link=try_caller(handshake))
    with tracing.span(name, attributes, kind="server", place=place) as span:
        trace = tracing.current()
        names = {"trace_id": trace.trace_id} if trace else {}
        # A terminal would obey control characters.
        if tenant.isprintable() and tenant:
            names["tenant"] = tenant
        with bound_contextvars(**names, **_find_conversation(payload)):
            yield span


def tell_status(span: Span, status: int) -> None:
    """What came of the call: the status that REST would give."""
    span.note({"rpc.response.status_code": str(status)})
    if status >= _SERVER_ERROR:
        span.fail(str(status))


def _find_conversation(payload: tuple[object, ...]) -> dict[str, str]:
    """The conversation that is asked for, allowed or not; `new` has none yet."""
    match payload:
        case ({"conversation_id": str(asked)},) if is_id(asked, "conv"):
            return {"conversation_id": asked}
        case _:
            return {}
