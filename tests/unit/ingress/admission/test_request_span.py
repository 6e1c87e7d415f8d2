"""Requests in traces and logs."""

import pytest
from helpers.recorded_spans import KeptTracing
from starlette.types import Scope

from everturn.core.ids import RandomIds
from everturn.core.tracing import NO_TRACING, TraceContext
from ingress.admission.edge import find_log_names, name_method, open_span, record_response, try_caller
from ingress.app import build_routes

HEADER = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONVERSATION = RandomIds(lambda: 0).conversation()


def build_scope(path: str, *headers: tuple[bytes, bytes], method: str = "POST") -> Scope:
    return {"type": "http", "method": method, "scheme": "https", "path": path, "headers": list(headers)}


def test_the_callers_span_is_named_once_or_not_at_all() -> None:
    assert try_caller(build_scope("/x", (b"traceparent", HEADER))) is not None
    assert try_caller(build_scope("/x", (b"traceparent", HEADER), (b"traceparent", HEADER))) is None
    assert try_caller(build_scope("/x", (b"traceparent", b"\xff"))) is None
    assert try_caller(build_scope("/x")) is None


@pytest.mark.parametrize(
    ("path", "passed_on"),
    [
        ("/conversations/a/b/new/messages", True),
        ("/metrics", False),
        ("/readyz", False),
        ("/conversations/a/b/c/events", False),
    ],
)
def test_probes_and_streams_are_no_spans(path: str, passed_on: bool) -> None:
    with open_span(NO_TRACING, build_scope(path, (b"traceparent", HEADER))):
        assert (NO_TRACING.current() is not None) is passed_on


@pytest.mark.parametrize(("method", "named"), [("POST", "POST"), ("BREW", "_OTHER")])
def test_a_request_has_the_attributes_that_the_conventions_require(method: str, named: str) -> None:
    tracing = KeptTracing()

    with open_span(tracing, build_scope("/" + "x" * 1000, method=method)):
        pass

    (span,) = tracing.spans
    assert span.kind == "server"
    assert span.attributes == {"http.request.method": named, "url.path": "/" + "x" * 255, "url.scheme": "https"}


def test_a_span_has_its_route_and_fails_on_a_server_error() -> None:
    tracing = KeptTracing()

    with tracing.span("POST", {}) as span:
        record_response(span, method="POST", route="/x/{id}", status=404)
    with tracing.span("GET", {}) as span:
        record_response(span, method="GET", route="/y", status=503)

    fine, broken = tracing.spans
    assert (fine.name, fine.failed) == ("POST /x/{id}", "")
    assert fine.attributes == {"http.route": "/x/{id}", "http.response.status_code": 404}
    assert broken.failed == "503"


def test_log_lines_name_the_tenant_the_conversation_and_the_trace() -> None:
    trace = TraceContext("a" * 32, "b" * 16)

    assert find_log_names(build_scope(f"/conversations/acme/main/{CONVERSATION}/messages"), trace) == {
        "trace_id": "a" * 32,
        "tenant": "acme",
        "conversation_id": CONVERSATION,
    }
    assert find_log_names(build_scope("/conversations/acme/main/new/messages"), None) == {"tenant": "acme"}
    assert find_log_names(build_scope("/other"), None) == {}
    assert find_log_names(build_scope("/widgets/evw_x.y/a/b"), None) == {}


def test_log_names_have_the_tenant_of_every_route_that_has_one() -> None:
    scoped = [path for path in build_routes().openapi()["paths"] if "/{tenant}/" in path]

    found = [find_log_names(build_scope(path.replace("{tenant}", "acme")), None) for path in scoped]

    assert len(scoped) > 30
    assert found == [{"tenant": "acme"}] * len(scoped)


@pytest.mark.parametrize("tenant", ["a\x1b[2Jb", "a\u202eb", "a\nb"])
def test_what_a_terminal_would_obey_is_no_tenant_of_a_log_line(tenant: str) -> None:
    assert find_log_names(build_scope(f"/conversations/{tenant}/main"), None) == {}


def test_methods_are_few() -> None:
    assert [name_method(build_scope("/x", method=each)) for each in ("GET", "BREW")] == ["GET", "other"]
