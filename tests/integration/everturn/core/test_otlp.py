"""Spans as a real collector gets them, and what a dead one costs."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from helpers.collector import Collector
from prometheus_client import REGISTRY

from everturn.core.trace_export import open_tracing
from everturn.core.tracing import SpanLinks, TraceContext

CALLER = TraceContext("a" * 32, "b" * 16)
OWN = TraceContext("c" * 32, "d" * 16)
BEFORE = TraceContext("a" * 32, "e" * 16)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def count_ended() -> float:
    return REGISTRY.get_sample_value("everturn_trace_spans_ended_total") or 0.0


def count_sent(outcome: str) -> float:
    return REGISTRY.get_sample_value("everturn_trace_spans_sent_total", {"outcome": outcome}) or 0.0


async def test_spans_nest_also_through_tasks_and_arrive_when_the_process_ends(collector: Collector) -> None:
    async with open_tracing("service", collector.url) as tracing:

        async def work() -> None:
            with tracing.span("inner", {"n": 1}):
                tracing.record("finished", {}, lasted_s=2.0)

        with tracing.span("outer", {}, kind="server", links=SpanLinks(parent=CALLER)) as outer:
            await asyncio.create_task(work())
            outer.note({"route": "/x"})
            outer.rename("GET /x")
            current = tracing.current()

    finished, inner, outer_span = collector.spans
    assert [finished.name, inner.name, outer_span.name] == ["finished", "inner", "GET /x"]
    assert (outer_span.trace_id, outer_span.parent) == (CALLER.trace_id, CALLER.span_id)
    assert (inner.parent, finished.parent) == (outer_span.span_id, inner.span_id)
    assert current == TraceContext(outer_span.trace_id, outer_span.span_id)
    assert (outer_span.attributes, inner.attributes) == ({"route": "/x"}, {"n": 1})
    assert finished.lasted_ns == 2_000_000_000
    assert outer_span.service == "service"
    assert tracing.current() is None


async def test_a_span_may_have_ids_of_its_own_and_a_link(collector: Collector) -> None:
    async with open_tracing("service", collector.url) as tracing:
        with tracing.span("root", {}, links=SpanLinks(own=OWN)), tracing.span("child", {}):
            pass
        with tracing.span("below", {}, links=SpanLinks(parent=CALLER, own=OWN, link=BEFORE)):
            pass

    child, root, below = collector.spans
    assert (root.trace_id, root.span_id, root.parent) == (OWN.trace_id, OWN.span_id, "")
    assert (child.trace_id, child.parent) == (OWN.trace_id, OWN.span_id)
    assert child.span_id != OWN.span_id
    assert (below.trace_id, below.span_id, below.parent) == (CALLER.trace_id, OWN.span_id, CALLER.span_id)
    assert below.links == ((BEFORE.trace_id, BEFORE.span_id),)


async def test_a_failed_span_has_the_type_of_its_error_but_not_its_text(collector: Collector) -> None:
    async with open_tracing("service", collector.url) as tracing:
        with pytest.raises(ValueError), tracing.span("broken", {}):
            raise ValueError("what a user wrote")

    (broken,) = collector.spans
    assert broken.is_error
    assert broken.attributes == {"error.type": "ValueError"}
    assert b"wrote" not in broken.raw


async def test_no_span_is_sent_for_an_unsampled_caller(collector: Collector) -> None:
    async with open_tracing("service", collector.url) as tracing:
        unsampled = TraceContext("a" * 32, "b" * 16, sampled=False)
        with tracing.span("quiet", {}, links=SpanLinks(parent=unsampled)):
            current = tracing.current()

    assert collector.spans == []
    assert current is not None
    assert (current.trace_id, current.sampled) == (unsampled.trace_id, False)


async def test_a_collector_that_refuses_costs_a_counter_and_no_request(collector: Collector) -> None:
    collector.status = 400
    before = count_ended(), count_sent("failed"), count_sent("ok")

    async with open_tracing("service", collector.url) as tracing:
        for _ in range(3):
            with tracing.span("lost", {}):
                pass

    assert (count_ended(), count_sent("failed"), count_sent("ok")) == (before[0] + 3, before[1] + 3, before[2])


async def test_an_unreachable_collector_delays_neither_work_nor_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "512")
    before = count_ended(), count_sent("ok")

    async with asyncio.timeout(30), open_tracing("service", "http://127.0.0.1:9") as tracing:
        for _ in range(5_000):
            with tracing.span("lost", {}):
                pass
        began = time.monotonic()
    took_s = time.monotonic() - began

    assert (count_ended(), count_sent("ok")) == (before[0] + 5_000, before[1])
    assert took_s < 20, "the SDK alone waits half a minute and more"
