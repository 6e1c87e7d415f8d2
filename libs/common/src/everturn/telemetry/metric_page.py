"""The page of the documents that lists every metric, made from the definitions, with the questions they answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One metric as the page shows it. `series` are the names under which Prometheus keeps it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    series: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What an operator asks, and the PromQL that answers it, with what the answer means."""

    title: str
    answers: tuple[tuple[str, str], ...]


QUESTIONS: Final = (
    Question(
        "Is it up?",
        (
            ("Processes that Prometheus reaches, by job.", "sum by (job) (up)"),
            ("Workers that run turns; none means that messages wait.", "count(everturn_worker_slots)"),
            (
                "Times the live wire was lost by an ingress, in an hour.",
                "sum by (kind) (increase(ingress_wire_losses_total[1h]))",
            ),
            (
                "Leases lost and turns taken over in an hour: workers die, or the database is slow.",
                "sum(increase(everturn_leases_lost_total[1h])) + sum(increase(everturn_turns_taken_over_total[1h]))",
            ),
        ),
    ),
    Question(
        "Is it slow?",
        (
            (
                "Seconds from a message to the first text that a person sees, of the slowest 5 %.",
                "histogram_quantile(0.95, sum by (le) (rate(everturn_turn_first_token_seconds_bucket[5m])))",
            ),
            (
                "Of these, seconds in the queue, by lane.",
                "histogram_quantile(0.95, sum by (le, lane) (rate(everturn_turn_queue_seconds_bucket[5m])))",
            ),
            (
                "Seconds of a model call that decides what happens next, by model.",
                "histogram_quantile(0.95,"
                ' sum by (le, model) (rate(everturn_model_call_seconds_bucket{kind="decision"}[5m])))',
            ),
            (
                "Seconds of a tool call, by tool.",
                "histogram_quantile(0.95, sum by (le, tool_id) (rate(everturn_tool_seconds_bucket[5m])))",
            ),
            (
                "Seconds from an event to the client that reads it.",
                "histogram_quantile(0.99, sum by (le) (rate(ingress_stream_lag_seconds_bucket[5m])))",
            ),
            (
                "Part of the input tokens that came from the provider's cache, by model; breaks make it small.",
                'sum by (model) (rate(everturn_cached_tokens_total{kind="read"}[1h]))'
                ' / sum by (model) (rate(everturn_tokens_total{kind="input"}[1h]))',
            ),
        ),
    ),
    Question(
        "Is it failing?",
        (
            (
                "Part of the turns that failed.",
                'sum(rate(everturn_turns_ended_total{outcome="failed"}[15m]))'
                " / sum(rate(everturn_turns_ended_total[15m]))",
            ),
            (
                "Model calls that broke off, a second.",
                "sum by (model, kind) (rate(everturn_model_calls_failed_total[15m]))",
            ),
            (
                "Part of the calls of each tool that failed.",
                'sum by (tool_id) (rate(everturn_tool_calls_total{outcome="error"}[15m]))'
                " / sum by (tool_id) (rate(everturn_tool_calls_total[15m]))",
            ),
            (
                "Requests that nobody expected to fail, a second.",
                'sum by (route) (rate(ingress_requests_total{status="500"}[5m]))',
            ),
        ),
    ),
    Question(
        "Is it full?",
        (
            ("Turns that wait, by lane.", "max by (lane) (everturn_queued_turns)"),
            ("Part of the workers' slots that is taken.", "sum(everturn_worker_turns) / sum(everturn_worker_slots)"),
            ("Requests refused, by reason, a second.", "sum by (reason) (rate(ingress_refusals_total[5m]))"),
            ("Open event streams of each ingress.", "ingress_streams"),
            ("US dollars an hour, by model.", "sum by (model) (rate(everturn_cost_usd_total[1h])) * 3600"),
            (
                "Model calls that no price is known for: they are missing in the cost.",
                "sum by (model) (increase(everturn_unpriced_model_calls_total[1d]))",
            ),
        ),
    ),
)


def list_metrics(registry: CollectorRegistry) -> list[MetricLine]:
    """What is registered there and ours, by name; what the client library adds of its own is left out."""
    # The library tells names and labels of metrics without samples nowhere else.
    collectors = cast("Iterable[Collector]", vars(registry)["_collector_to_names"])
    known = [one for one in collectors if isinstance(one, Counter | Gauge | Histogram)]
    return sorted((_describe(one) for one in known), key=lambda line: line.name)


def _describe(metric: Counter | Gauge | Histogram) -> MetricLine:
    (described,) = metric.describe()
    labels = cast("tuple[str, ...]", tuple(vars(metric)["_labelnames"]))
    name = f"{described.name}_total" if described.type == "counter" else described.name
    series = (name,)
    if described.type == "histogram":
        series = tuple(f"{name}_{part}" for part in ("bucket", "count", "sum"))
    return MetricLine(name, described.type, labels, described.documentation, series)


def render_metric_page(groups: Sequence[tuple[str, Sequence[MetricLine]]], labels: Mapping[str, str]) -> str:
    """Markdown. A group is who serves these metrics and where, and the metrics; `labels` have a meaning each."""
    lines = [
        "# Metrics",
        "Made from the code; a test keeps it so. How they are reached: `docs/how-to/watch-an-installation.md`.",
        "No label is an id or a text that people write: models and tools are those that the operator configured.",
        "",
    ]
    lines += ["## Labels", "A label means the same at every metric that has it.", ""]
    lines += ["| label | meaning |", "|---|---|"]
    lines += [f"| `{label}` | {meaning} |" for label, meaning in sorted(labels.items())]
    lines.append("")
    for title, metrics in groups:
        lines += [f"## {title}", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for metric in metrics:
            shown = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {metric.kind} | {shown} | {metric.meaning} |")
        lines.append("")
    lines += ["## What operators ask"]
    for question in QUESTIONS:
        lines += ["", f"### {question.title}"]
        for meaning, query in question.answers:
            lines += ["", meaning, "", "```promql", query, "```"]
    return "\n".join(lines) + "\n"
