"""Without a collector a caller's trace is passed on, and nothing else happens."""

import pytest

from everturn.core.tracing import NO_TRACING, SpanLinks, TraceContext

CALLER = TraceContext("a" * 32, "b" * 16)


def test_the_callers_trace_is_the_present_one_inside_its_span_only() -> None:
    with NO_TRACING.span("outer", {}, links=SpanLinks(parent=CALLER)) as span:
        span.note({"a": 1})
        span.rename("b")
        span.fail("c")
        with NO_TRACING.span("inner", {}):
            inside = NO_TRACING.current()

    assert inside == CALLER
    assert NO_TRACING.current() is None


def test_an_exception_passes_and_the_trace_ends_with_it() -> None:
    with pytest.raises(ValueError, match="x"), NO_TRACING.span("outer", {}, links=SpanLinks(parent=CALLER)):
        raise ValueError("x")

    assert NO_TRACING.current() is None
