"""A question that leans on the last analysis is answered from its result, or gets what it leaves out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.models.offline.followups import build_base, fits, leans, read_about, read_known
from chat_proc.models.offline.programs import Base
from chat_proc.models.offline.results import TableResult


def group(name: str, rows: int, total: float) -> dict[str, object]:
    return {"name": name, "rows": rows, "values": {"revenue": {"total": total, "mean": total / rows}}}


LAST = TableResult.model_validate(
    {
        "file": "sales.csv",
        "rows": 60,
        "used_rows": 60,
        "columns": ["date", "region", "product", "units", "revenue"],
        "numbers": ["units", "revenue"],
        "totals": {"revenue": {"total": 600, "mean": 10, "median": 9, "min": 1, "max": 40, "count": 60}},
        "group": "region",
        "by": [["region", None]],
        "group_count": 3,
        "groups": [group("North", 10, 300), group("South", 20, 200), group("West", 30, 100)],
    }
)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (
            "And which region was best?",
            "**North** has the highest total revenue by region: 300. The lowest is West with 100.",
        ),
        ("which was worst?", "**West** has the lowest total revenue by region: 100. The highest is North with 300."),
        ("best on average?", "**North** has the highest average revenue by region: 30."),
        ("what about South?", "- **South**: total revenue 200 (20 rows), number 2 of 3"),
        ("How much revenue did West make?", "- **West**: total revenue 100 (30 rows), number 3 of 3"),
        ("is West better than North?", "North is ahead of West by 200."),
        ("compare North and West", "North is ahead of West by 200."),
        ("top 2", "1. North: total revenue 300 (10 rows)\n2. South: total revenue 200 (20 rows)"),
        ("what was the total revenue?", "The total revenue is 600."),
        ("what is the median?", "The median revenue is 9."),
        ("how many rows are there?", "sales.csv has 60 rows."),
    ],
)
def test_the_last_result_answers_where_it_suffices(question: str, told: str) -> None:
    assert told in (read_known(question, LAST) or "")


@pytest.mark.parametrize(
    "question",
    [
        "and per product?",
        "which product was best?",
        "which month was best?",
        "plot units instead",
        "now as averages",
        "and the median?",
        "what about Atlantis?",
        "total units",
        "best median?",
        "how many rows per product?",
        "what is the best way to cook rice?",
        "show it per month",
        "a pie chart of North",
    ],
)
def test_what_the_last_result_does_not_hold_is_not_guessed(question: str) -> None:
    assert read_known(question, LAST) is None


def test_groups_that_were_cut_are_not_ranked() -> None:
    cut = LAST.model_copy(update={"group_count": 50})

    assert read_known("which region was worst?", cut) is None


def test_figures_of_some_rows_are_not_told_as_those_of_all() -> None:
    filtered = LAST.model_copy(update={"filters": {"product": ("Tea",)}, "used_rows": 7, "group": None, "groups": ()})

    assert read_known("what was the total revenue?", filtered) is None
    assert read_known("how many rows?", filtered) == "sales.csv has 60 rows; 7 of them where product is Tea."


@pytest.mark.parametrize("question", ["now as averages", "show it per month", "plot units instead", "and per product?"])
def test_a_followup_gets_the_grouping_and_the_columns_of_the_question_before(question: str) -> None:
    assert build_base(question, LAST) == Base((("region", None),), ("revenue",), (), {})


def test_a_question_of_its_own_gets_only_the_column() -> None:
    last = LAST.model_copy(update={"figures": ("mean",), "filters": {"product": ("Tea",)}})

    assert build_base("Show by product", last) == Base((), ("revenue",), ("mean",), {})
    assert build_base("Total units by product", last) == Base((), ("revenue",), (), {})
    assert build_base("Summarize the file", last) == Base()
    assert build_base("and overall?", last) == Base((), ("revenue",), ("mean",), {})


@pytest.mark.parametrize(
    ("question", "what"),
    [
        ("what about South?", "South"),
        ("And for New York only?", "New York"),
        ("only Tea", "Tea"),
        ("and North?", "North"),
        ("and tell me a joke", None),
        ("what about per month?", None),
        ("and in total?", None),
        ("and this one?", None),
        ("revenue by region", None),
    ],
)
def test_what_a_followup_is_about_is_found(question: str, what: str | None) -> None:
    assert read_about(question) == what


def test_only_what_reads_like_a_continuation_fits_without_a_column() -> None:
    assert all(fits(question, LAST) for question in ("now as averages", "what about Atlantis?", "and the best?"))
    assert not any(fits(question, LAST) for question in ("tell me a joke", "and tell me a joke", "thanks"))
    assert leans("the same for units")
    assert not leans("total revenue")


@given(st.text(max_size=100))
def test_no_question_breaks_the_rules(question: str) -> None:
    read_known(question, LAST)
    build_base(question, LAST)

    assert fits(question, LAST) in (True, False)
