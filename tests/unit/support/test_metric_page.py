"""The page shows what is defined, with the names under which Prometheus keeps it."""

from documents.metric_page import QUESTIONS, list_metrics, render_metric_page
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


def test_metrics_are_listed_by_name_with_their_series_and_labels() -> None:
    registry = CollectorRegistry()
    Histogram("b_seconds", "Waits.", ["lane"], registry=registry)
    Counter("a", "Things.", registry=registry)
    Gauge("c", "Now.", registry=registry)

    lines = list_metrics(registry)

    assert [(line.name, line.kind, line.labels) for line in lines] == [
        ("a_total", "counter", ()),
        ("b_seconds", "histogram", ("lane",)),
        ("c", "gauge", ()),
    ]
    assert lines[1].series == ("b_seconds_bucket", "b_seconds_count", "b_seconds_sum")


def test_the_page_has_each_label_each_metric_and_each_question() -> None:
    registry = CollectorRegistry()
    Counter("a", "Things.", ["kind"], registry=registry)

    page = render_metric_page([("Somewhere", list_metrics(registry))], {"kind": "Which sort."})

    assert "## Somewhere\n" in page
    assert "| `kind` | Which sort. |" in page
    assert "| `a_total` | counter | `kind` | Things. |" in page
    assert all(f"### {question.title}" in page for question in QUESTIONS)
