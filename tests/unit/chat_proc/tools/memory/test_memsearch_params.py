from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from chat_proc.tools.memory.memsearch import MemsearchParams, Mode, choose_targets, choose_times, infer_mode
from everturn.core.errors import Invalid
from everturn.memory.search import SnippetTarget

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def params(**given: object) -> MemsearchParams:
    return MemsearchParams.model_validate(given)


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"ordinal": 2}, Mode.ORDINAL),
        ({"ordinal": 2, "query": "x"}, Mode.ORDINAL),
        ({"from": "2026-03-01"}, Mode.TEMPORAL),
        ({"to": "2026-03-01"}, Mode.TEMPORAL),
        ({"days": 3}, Mode.TEMPORAL),
        ({"query": "x"}, Mode.SEMANTIC),
        ({"query": "x", "from": "2026-03-01"}, Mode.SEMANTIC),
        ({}, Mode.TIMELINE),
        ({"query": "  "}, Mode.TIMELINE),
        ({"mode": "timeline", "query": "x"}, Mode.TIMELINE),
        ({"mode": "temporal"}, Mode.TEMPORAL),
    ],
)
def test_the_mode_follows_from_what_is_given(given: dict[str, object], mode: Mode) -> None:
    assert infer_mode(params(**given)) is mode


@pytest.mark.parametrize("given", [{"mode": "semantic"}, {"mode": "ordinal"}])
def test_a_mode_that_lacks_what_it_needs_says_so(given: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="needs"):
        infer_mode(params(**given))


def test_the_default_targets_depend_on_the_mode() -> None:
    assert choose_targets(params(), Mode.TIMELINE) == {SnippetTarget.SUMMARY}
    assert choose_targets(params(), Mode.SEMANTIC) == set(SnippetTarget)
    assert choose_targets(params(targets=["notes"]), Mode.SEMANTIC) == {SnippetTarget.NOTES}


def test_times_are_in_utc_and_days_count_back_from_now() -> None:
    given = params(**{"from": "2026-02-01T00:00:00", "to": "2026-02-02T00:00:00+02:00"})

    assert choose_times(given, NOW) == (
        datetime(2026, 2, 1, tzinfo=UTC),
        datetime(2026, 2, 1, 22, tzinfo=UTC),
    )
    assert choose_times(params(days=7), NOW) == (NOW - timedelta(days=7), None)
    assert choose_times(params(**{"days": 7, "from": "2026-01-01"}), NOW)[0] == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "to"),
    [
        ("0001-01-01T00:00:00", "9999-12-31T23:59:59"),
        ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    ],
)
def test_extreme_times_are_clamped(since: str, to: str) -> None:
    given = params(**{"from": since, "to": to})

    assert choose_times(given, NOW) == (datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "given",
    [{"top_k": 0}, {"top_k": 51}, {"ordinal": 0}, {"days": 0}, {"from": "soon"}, {"targets": ["all"]}, {"x": 1}],
)
def test_what_does_not_fit_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        params(**given)
