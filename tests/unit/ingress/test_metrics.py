"""Each process has counters of its own, and renders them beside its event loop."""

import threading
from types import SimpleNamespace

from fastapi import Request
from prometheus_client import Gauge, generate_latest

from everturn.core.ttl_cache import TtlCache
from everturn_testing.core import FixedClock
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.queue.queue import MemoryQueue
from ingress.health import QueueWatch, ReadyOut, get_metrics
from ingress.metrics import IngressMetrics


def test_two_applications_count_apart() -> None:
    one, other = IngressMetrics(), IngressMetrics()

    one.unhandled.inc()

    assert b"ingress_unhandled_errors_total 1.0" in generate_latest(one.registry)
    assert b"ingress_unhandled_errors_total 0.0" in generate_latest(other.registry)


async def test_the_page_is_rendered_beside_the_event_loop() -> None:
    on_loop: list[bool] = []
    metrics = IngressMetrics()
    thread = Gauge("trial_thread", "Things.", registry=metrics.registry)
    thread.set_function(lambda: on_loop.append(threading.current_thread() is threading.main_thread()) or 0.0)

    async def check() -> ReadyOut:
        return ReadyOut(status="ready", parts={}, workers=None)

    state = SimpleNamespace(
        metrics=metrics,
        queue_watch=QueueWatch(MemoryQueue(MemoryPlatform(FixedClock())), metrics, monotonic=lambda: 0.0),
        readiness=TtlCache(check, keep_s=1.0, monotonic=lambda: 0.0),
    )
    request = Request({"type": "http", "headers": [], "app": SimpleNamespace(state=state)})

    assert b"trial_thread 0.0" in bytes((await get_metrics(request)).body)

    assert on_loop == [False]
