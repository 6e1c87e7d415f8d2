"""The documentation page that lists every metric, built from the definitions, with the questions they answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One metric of the page. `series` are its names in Prometheus."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    series: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question of an operator, the PromQL that answers it, and the meaning of the answer."""

    title: str
    answers: tuple[tuple[str, str], ...]


QUESTIONS: Final = (
    Question(
        "Is it up?",
        (
            ("Processes that Prometheus can reach, by job.", "sum by (job) (up)"),
            ("Running workers; without any, messages wait.", "count(everturn_worker_slots > 0)"),
            (
                "Times that an ingress lost its connection to Redis, per hour.",
                "sum by (kind) (increase(ingress_redis_losses_total[1h]))",
            ),
            (
                "Leases lost and turns taken over, per hour: workers die, or the database is slow.",
                "sum(increase(everturn_leases_lost_total[1h])) + sum(increase(everturn_turns_taken_over_total[1h]))",
            ),
        ),
    ),
    Question(
        "Is it slow?",
        (
            (
                "Seconds from a message to the first text that a person sees (95th percentile).",
                "histogram_quantile(0.95, sum by (le) (rate(everturn_turn_first_token_seconds_bucket[5m])))",
            ),
            (
                "Seconds that a turn spends in the queue, by lane (95th percentile).",
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
                "Seconds from the creation of an event to its delivery to a client (99th percentile).",
                "histogram_quantile(0.99, sum by (le) (rate(ingress_stream_lag_seconds_bucket[5m])))",
            ),
            (
                "Fraction of the input tokens read from the provider's cache, by model; prompt breaks lower it.",
                'sum by (model) (rate(everturn_cached_tokens_total{kind="read"}[1h]))'
                ' / sum by (model) (rate(everturn_tokens_total{kind="input"}[1h]))',
            ),
        ),
    ),
    Question(
        "Is it failing?",
        (
            (
                "Fraction of turns that failed.",
                'sum(rate(everturn_turns_ended_total{outcome="failed"}[15m]))'
                " / sum(rate(everturn_turns_ended_total[15m]))",
            ),
            (
                "Failed model calls per second.",
                "sum by (model, kind) (rate(everturn_model_calls_failed_total[15m]))",
            ),
            (
                "Fraction of failed calls, by tool.",
                'sum by (tool_id) (rate(everturn_tool_calls_total{outcome="error"}[15m]))'
                " / sum by (tool_id) (rate(everturn_tool_calls_total[15m]))",
            ),
            (
                "Requests that failed with an internal error, per second.",
                'sum by (route) (rate(ingress_requests_total{status="500"}[5m]))',
            ),
        ),
    ),
    Question(
        "Is it full?",
        (
            ("Waiting turns, by lane.", "max by (lane) (everturn_queued_turns)"),
            (
                "Running turns per ordinary slot; above 1 while extra slots are in use.",
                "sum(everturn_worker_turns) / sum(everturn_worker_slots)",
            ),
            ("Rejected requests per second, by reason.", "sum by (reason) (rate(ingress_refusals_total[5m]))"),
            ("Open event streams of each ingress.", "ingress_streams"),
            ("US dollars per hour, by model.", "sum by (model) (rate(everturn_cost_usd_total[1h])) * 3600"),
            (
                "Model calls without a known price, which the cost does not include.",
                "sum by (model) (increase(everturn_unpriced_model_calls_total[1d]))",
            ),
        ),
    ),
)


def list_metrics(registry: CollectorRegistry) -> list[MetricLine]:
    """Our metrics of this registry, by name, without those that the client library adds."""
    # The library offers no public way to list names and labels of metrics without samples.
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
    """Markdown. A group is a title, which names the process and address of the metrics, and the metrics; `labels` maps
    each label to its meaning."""
    lines = [
        "# Metrics",
        "Generated from the code; a test keeps it up to date. How to scrape them: [operate.md](operate.md#monitor).",
        "No label is an id or user-written text: models and tools are those that the operator configured.",
        "",
    ]
    lines += ["## Labels", "A label has the same meaning in every metric that uses it.", ""]
    lines += ["| label | meaning |", "|---|---|"]
    lines += [f"| `{label}` | {meaning} |" for label, meaning in sorted(labels.items())]
    lines.append("")
    for title, metrics in groups:
        lines += [f"## {title}", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for metric in metrics:
            shown = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {metric.kind} | {shown} | {metric.meaning} |")
        lines.append("")
    lines += ["## Questions that operators ask"]
    for question in QUESTIONS:
        lines += ["", f"### {question.title}"]
        for meaning, query in question.answers:
            lines += ["", meaning, "", "```promql", query, "```"]
    return "\n".join(lines) + "\n"
