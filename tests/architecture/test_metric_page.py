"""`docs/metrics.md` lists every metric, and every metric that a rule, a dashboard or an answer names is defined. Labels
are a closed set of words: one that means the same as another fails here."""

import json
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from architecture_rules.practices import defines_metrics
from architecture_rules.sources import load_modules
from documents.metric_page import QUESTIONS, MetricLine, list_metrics, render_metric_page
from prometheus_client import REGISTRY, CollectorRegistry

from everturn.core.metrics import LABELS
from everturn_client.metrics import CanaryMetrics
from exec_supervisor.broker.metrics import BrokerMetrics
from ingress.metrics import IngressMetrics

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "metrics.md"
RULES = REPOSITORY / "deploy" / "prometheus" / "everturn.rules.yml"
OPERATE = REPOSITORY / "docs" / "operate.md"
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "everturn.json"
SERIES = re.compile(r"\b((?:everturn|ingress)_[a-z_]+)(?:\{([^}]*)\})?")
BY = re.compile(r"\bby \(([^)]*)\)")


def load_groups() -> list[tuple[str, list[MetricLine]]]:
    brokers = CollectorRegistry()
    BrokerMetrics(brokers)
    canary = CanaryMetrics(CollectorRegistry())
    return [
        ("Shared: worker at METRICS_LISTEN, ingress at /metrics; each counts what it does", list_metrics(REGISTRY)),
        ("Ingress, at /metrics", list_metrics(IngressMetrics().registry)),
        ("Broker, at METRICS_LISTEN", list_metrics(brokers)),
        ("`everturn canary`, at --listen", list_metrics(canary.registry)),
    ]


@pytest.fixture(scope="module")
def known() -> dict[str, MetricLine]:
    lines = chain.from_iterable(lines for _, lines in load_groups())
    return {series: line for line in lines for series in line.series}


def load_alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def load_panels() -> list[dict[str, Any]]:
    return json.loads(DASHBOARD.read_text())["panels"]


def list_series(*queries: str) -> set[str]:
    """The metrics that the queries name, with `up`, which Prometheus makes itself."""
    return {name for query in queries for name in [*re.findall(r"\bup\b", query), *dict(SERIES.findall(query))]}


def load_queries() -> Iterator[str]:
    yield from (query for question in QUESTIONS for _, query in question.answers)
    yield from (rule["expr"] for rule in load_alerts())
    yield from (target["expr"] for panel in load_panels() for target in panel["targets"])


def test_the_page_lists_every_metric() -> None:
    text = render_metric_page(load_groups(), LABELS)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(text)

    assert PAGE.read_text() == text, "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/architecture"


@pytest.mark.parametrize("query", list(load_queries()))
def test_a_query_names_metrics_and_labels_that_there_are(query: str, known: dict[str, MetricLine]) -> None:
    named = SERIES.findall(query)
    labels = {"le", "job", "instance"}
    for series, selected in named:
        assert series in known, f"{series} is no metric"
        labels.update(known[series].labels)
        assert set(re.findall(r"(\w+)!?[=~]", selected)) <= set(known[series].labels)

    assert named or re.search(r"\bup\b", query)
    assert {label.strip() for group in BY.findall(query) for label in group.split(",")} <= labels
    assert query.count("(") == query.count(")")


def test_every_alert_says_what_to_do() -> None:
    rules = load_alerts()

    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"] and rule["annotations"]["action"]


@pytest.mark.parametrize("rule", load_alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_names_a_panel_that_shows_its_metrics_and_has_a_line_in_the_runbook(rule: dict[str, Any]) -> None:
    [panel] = [each for each in load_panels() if each["title"] == rule["annotations"]["panel"]]
    lines = [line.split(" | ") for line in OPERATE.read_text().splitlines() if line.startswith("| `Everturn")]

    assert list_series(rule["expr"]) <= list_series(*(target["expr"] for target in panel["targets"]))
    assert sum(f"`{rule['alert']}`" in line[0] for line in lines) == 1


def test_the_runbook_has_only_alerts_that_exist() -> None:
    known = {rule["alert"] for rule in load_alerts()}

    assert set(re.findall(r"`(Everturn[A-Z]\w+)`", OPERATE.read_text())) <= known


def test_panels_of_the_dashboard_have_places_and_names_of_their_own() -> None:
    panels = load_panels()
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}

    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
    assert len(places) == len(panels)


def test_names_and_units_follow_prometheus() -> None:
    for line in chain.from_iterable(lines for _, lines in load_groups()):
        assert line.name.endswith("_total") is (line.kind == "counter"), line.name
        assert line.kind != "histogram" or line.name.endswith("_seconds"), line.name
        assert line.meaning.endswith("."), line.name


def test_every_label_is_one_of_the_words_that_have_a_meaning_and_every_word_is_used() -> None:
    lines = list(chain.from_iterable(lines for _, lines in load_groups()))

    unknown = {line.name: set(line.labels) - set(LABELS) for line in lines if set(line.labels) - set(LABELS)}
    assert not unknown, "take a word of everturn.core.metrics.LABELS, or say there what none of them says"
    assert {label for line in lines for label in line.labels} == set(LABELS)
    assert len({*LABELS.values()}) == len(LABELS)
    assert all(meaning.endswith(".") for meaning in LABELS.values())
    assert [*LABELS] == sorted(LABELS)
    assert not {"id", "conversation_id", "turn_id", "user", "tenant"} & set(LABELS)


def test_every_module_that_defines_metrics_is_on_the_page() -> None:
    defining = {module.path for module in load_modules() if defines_metrics(module) and module.name != "metric_page"}

    assert defining == {
        "clients/python/src/everturn_client/metrics.py",
        "libs/common/src/everturn/core/metrics.py",
        "services/exec-supervisor/src/exec_supervisor/broker/metrics.py",
        "services/ingress/src/ingress/metrics.py",
    }


def test_counters_do_not_share_a_name() -> None:
    names = [line.name for _, lines in load_groups() for line in lines]

    assert len(set(names)) == len(names)
