"""Metrics are defined once, with names that operators can find."""

from prometheus_client import Counter, generate_latest

from everturn.core import metrics


def test_every_counter_is_ours_by_name_and_says_what_it_counts() -> None:
    text = generate_latest().decode()

    counters = [value for value in vars(metrics).values() if isinstance(value, Counter)]
    assert counters
    for counter in counters:
        (described,) = counter.describe()
        assert described.name.startswith("everturn_")
        assert described.documentation.endswith(".")
        assert f"# HELP {described.name}_total" in text


def test_a_label_has_one_meaning() -> None:
    assert {"kind", "outcome", "reason", "status"} < set(metrics.LABELS)
    assert not {"cause", "why", "result", "ok", "type", "code", "what"} & set(metrics.LABELS)


def test_draws_are_counted() -> None:
    before = metrics.ROUNDS._value.get()

    metrics.ROUNDS.inc()

    assert metrics.ROUNDS._value.get() == before + 1
