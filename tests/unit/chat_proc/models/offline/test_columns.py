"""A question names columns, groups, periods and figures in many ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.offline.columns import (
    match_chart,
    match_columns,
    match_figures,
    match_group,
    match_period,
    match_ranking,
    match_second_group,
)

COLUMNS = ["date", "region", "units_sold", "Revenue (EUR)", "Größe"]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("total units sold by region", ["region", "units_sold"]),
        ("how does the REGION do", ["region"]),
        ("sum of revenue", ["Revenue (EUR)"]),
        ("units per day", ["units_sold"]),
        ("mean größe", ["Größe"]),
        ("hello", []),
    ],
)
def test_columns_are_named_whole_or_by_a_word(question: str, named: list[str]) -> None:
    assert match_columns(question, COLUMNS) == named


@pytest.mark.parametrize(
    ("question", "group"),
    [
        ("total revenue by region", "region"),
        ("revenue per region and by date", "region"),
        ("for each region show units", "region"),
        ("which regions sell most", "region"),
        ("by units sold", "units_sold"),
        ("top 5 regions by revenue", "region"),
        ("best region", "region"),
        ("by the revenue", "Revenue (EUR)"),
        ("region totals", None),
        ("bypass region", None),
    ],
)
def test_a_group_follows_a_word_such_as_by(question: str, group: str | None) -> None:
    assert match_group(question, COLUMNS) == group


@pytest.mark.parametrize(
    ("question", "period"),
    [
        ("revenue per month", "M"),
        ("monthly revenue", "M"),
        ("by year", "Y"),
        ("quarterly", "Q"),
        ("weekly units", "W"),
        ("each day", "D"),
        ("daily sales", "D"),
        ("trend of revenue", "auto"),
        ("revenue over time", "auto"),
        ("revenue in may", None),
    ],
)
def test_a_period_is_named_in_several_ways(question: str, period: str | None) -> None:
    assert match_period(question) == period


@pytest.mark.parametrize(
    ("question", "figures"),
    [
        ("total and average revenue", ["total", "mean"]),
        ("highest and lowest", ["min", "max"]),
        ("how many orders", ["count"]),
        ("the median, please", ["median"]),
        ("show me the data", []),
    ],
)
def test_figures_have_everyday_names(question: str, figures: list[str]) -> None:
    assert match_figures(question) == figures


@pytest.mark.parametrize(
    ("question", "ranking"),
    [
        ("which was best?", ("high", 1)),
        ("the top three regions", ("high", 3)),
        ("bottom 2", ("low", 2)),
        ("the worst one", ("low", 1)),
        ("revenue by region", None),
    ],
)
def test_the_best_and_the_worst_have_many_names(question: str, ranking: tuple[str, int] | None) -> None:
    assert match_ranking(question) == ranking


@pytest.mark.parametrize(
    ("question", "kind"),
    [("a pie chart", "pie"), ("as bars", "bar"), ("histogram", "hist"), ("line chart", "line"), ("a chart", None)],
)
def test_the_kind_of_chart_may_be_named(question: str, kind: str | None) -> None:
    assert match_chart(question) == kind


def test_two_columns_may_group_together() -> None:
    assert match_second_group("revenue by region and by date", "region", COLUMNS) == "date"
    assert match_second_group("revenue by region", "region", COLUMNS) is None


@given(st.text(), st.lists(st.text(), max_size=5))
def test_no_question_and_no_column_name_breaks_the_matching(question: str, columns: list[str]) -> None:
    match_period(question)
    match_figures(question)
    match_ranking(question)
    match_chart(question)

    assert set(match_columns(question, columns)) <= set(columns)
    assert match_group(question, columns) in [None, *columns]
