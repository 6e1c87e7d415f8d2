"""Trace contexts are read strictly, written as they were, and those of turns follow from their ids."""

import pytest

from everturn.core.tracing import TraceContext, build_turn_context, try_parse_context

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_context_is_written_as_it_was_read() -> None:
    context = try_parse_context(HEADER)

    assert context == TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    assert str(context) == HEADER
    assert str(try_parse_context(HEADER[:-2] + "00")) == HEADER[:-2] + "00"


def test_fields_of_a_later_version_are_ignored() -> None:
    assert try_parse_context("01" + HEADER[2:] + "-more") == try_parse_context(HEADER)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        HEADER.upper(),
        HEADER + "-more",
        "ff" + HEADER[2:],
        "00-" + "0" * 32 + HEADER[35:],
        HEADER[:36] + "0" * 16 + "-01",
        HEADER + "\n",
        "01" + HEADER[2:] + "-" + "x" * 600,
    ],
)
def test_an_invalid_context_is_none(header: str | None) -> None:
    assert try_parse_context(header) is None


def test_each_lease_of_a_turn_has_a_span_in_the_requests_trace() -> None:
    request = TraceContext("a" * 32, "b" * 16, sampled=False)

    first, second = build_turn_context("turn_1", 3, request), build_turn_context("turn_1", 4, request)

    assert first == build_turn_context("turn_1", 3, request)
    assert (first.trace_id, first.sampled) == (request.trace_id, False)
    assert len({first.span_id, second.span_id, request.span_id}) == 3


def test_a_turn_without_a_request_trace_has_its_own() -> None:
    one, again, other = (build_turn_context(turn, fence, None) for turn, fence in (("t1", 1), ("t1", 2), ("t2", 1)))

    assert one.trace_id == again.trace_id != other.trace_id
    assert try_parse_context(str(one)) == one
