"""Calls over a socket in traces and logs."""

import pytest
from helpers.recorded_spans import KeptTracing
from starlette.types import Scope
from structlog.contextvars import get_contextvars

from everturn.core.ids import RandomIds
from everturn.core.tracing import NO_TRACING, TraceContext
from ingress.sockets.calls import note_status, open_call_span

CALLER = TraceContext("a" * 32, "b" * 16)
CONVERSATION = RandomIds(lambda: 0).conversation()
TRACED: Scope = {"type": "websocket", "headers": [(b"traceparent", str(CALLER).encode())]}
PLAIN: Scope = {"type": "websocket", "headers": []}
PAYLOAD = [{"conversation_id": CONVERSATION, "text": "A secret question."}]


def test_a_call_is_a_span_linked_to_the_handshake_without_its_payload() -> None:
    tracing = KeptTracing()

    with open_call_span(tracing, "chat_message", TRACED, tenant="acme", payload=PAYLOAD) as span:
        note_status(span, 202)

    (kept,) = tracing.spans
    assert (kept.name, kept.kind, kept.failed) == ("chat_message", "server", "")
    assert (kept.parent, kept.link) == (None, CALLER)
    assert kept.attributes == {
        "rpc.system.name": "socketio",
        "rpc.method": "chat_message",
        "rpc.response.status_code": "202",
    }


@pytest.mark.parametrize(("status", "failed"), [(200, ""), (429, ""), (500, "500"), (503, "503")])
def test_only_an_error_of_the_server_fails(status: int, failed: str) -> None:
    tracing = KeptTracing()

    with open_call_span(tracing, "conv_subscribe", PLAIN, tenant="acme", payload=[]) as span:
        note_status(span, status)

    assert tracing.spans[0].failed == failed
    assert tracing.spans[0].link is None


def test_log_lines_of_a_call_name_tenant_conversation_and_trace() -> None:
    tracing = KeptTracing()

    with open_call_span(tracing, "chat_signal", PLAIN, tenant="acme", payload=PAYLOAD):
        bound = get_contextvars()

    trace_id = tracing.spans[0].own.trace_id
    assert bound == {"tenant": "acme", "conversation_id": CONVERSATION, "trace_id": trace_id}
    assert not get_contextvars()


@pytest.mark.parametrize("payload", [[], ["x"], [{"conversation_id": "new"}], [{"conversation_id": 1}], [{}, {}]])
def test_invalid_conversations_and_unprintable_tenants_are_not_logged(payload: list[object]) -> None:
    with open_call_span(NO_TRACING, "chat_message", PLAIN, tenant="a\x1b[2Jb", payload=payload):
        assert get_contextvars() == {}
