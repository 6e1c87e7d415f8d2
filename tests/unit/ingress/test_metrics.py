"""Each process has counters of its own."""

from prometheus_client import generate_latest

from ingress.metrics import IngressMetrics


def test_two_applications_count_apart() -> None:
    one, other = IngressMetrics(), IngressMetrics()

    one.unhandled.inc()

    assert b"ingress_unhandled_errors_total 1.0" in generate_latest(one.registry)
    assert b"ingress_unhandled_errors_total 0.0" in generate_latest(other.registry)
