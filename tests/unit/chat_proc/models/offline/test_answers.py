"""Figures become sentences and tables with readable numbers."""

from typing import Any

import pytest

from chat_proc.models.offline.answers import (
    format_number,
    render_capabilities,
    render_filters,
    render_program_output,
    render_table_answer,
    suggest_questions,
)
from chat_proc.models.offline.results import TableResult

RESULT: dict[str, Any] = {
    "file": "sales.csv",
    "rows": 1200,
    "used_rows": 1200,
    "columns": ["date", "region", "revenue"],
    "filters": {},
    "figures": ["total"],
    "totals": {"revenue": {"total": 1234567.891, "mean": 1028.8, "min": -5, "max": 9000, "count": 1199, "missing": 1}},
    "group": "region",
    "by": [["region", None]],
    "labels": ["region", "product"],
    "dates": ["date"],
    "group_count": 2,
    "groups": [
        {"name": "North|West", "rows": 700, "values": {"revenue": {"total": 1000000, "mean": 1.5}}},
        {"name": "South", "rows": 500, "values": {"revenue": {"total": 234567.891, "mean": None}}},
    ],
}


def test_the_answer_has_the_asked_figures_a_table_and_the_extremes() -> None:
    text = render_table_answer(TableResult.model_validate(RESULT), ["outputs/sales.png"])

    assert text == (
        "From **sales.csv**, 1,200 rows:\n"
        "- **revenue**: total 1,234,567.89 (1,199 values, 1 missing)\n"
        "\nBy region:\n\n"
        "| region | rows | total revenue |\n"
        "| --- | --- | --- |\n"
        "| North\\|West | 700 | 1,000,000 |\n"
        "| South | 500 | 234,567.89 |\n"
        "\nHighest total revenue by region: North|West with 1,000,000. Lowest: South with 234,567.89.\n"
        "Files: `outputs/sales.png`."
    )


def test_filters_and_cut_tables_are_told() -> None:
    result = RESULT | {"filters": {"region": ["South"]}, "used_rows": 500, "group_count": 40}

    text = render_table_answer(TableResult.model_validate(result), [])

    assert "From **sales.csv**, 500 of 1,200 rows, where region is South:" in text
    assert "Shown are 2 of 40; the table file has all." in text
    assert "Highest" not in text


def test_a_file_without_rows_is_told() -> None:
    text = render_table_answer(TableResult(error="The file has no rows."), [])

    assert text == "I could not analyse the file. The file has no rows."


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"region": ["South", "West"]}, "region is South or West"),
        ({"region": ["not South"]}, "region is not South"),
        ({"date": ["March", "2024", ""], "units": ["above 5"]}, "date is in March 2024; units is above 5"),
    ],
)
def test_rows_that_were_left_out_are_told_in_words(filters: dict[str, list[str]], text: str) -> None:
    assert render_filters(TableResult.model_validate(RESULT | {"filters": filters})) == text


def test_the_best_group_is_told_first_when_it_was_asked_for() -> None:
    text = render_table_answer(TableResult.model_validate(RESULT | {"ranking": ["high", 1]}), [])

    assert text.startswith("**North|West** has the highest total revenue: 1,000,000.\n\nFrom")
    assert "Highest total" not in text


def test_the_best_group_may_be_the_one_with_the_most_rows() -> None:
    rows = [{"name": "Paris", "rows": 2, "values": {}}, {"name": "Rome", "rows": 1, "values": {}}]
    result = RESULT | {"ranking": ["high", 1], "groups": rows, "totals": {}, "figures": ["count"]}

    text = render_table_answer(TableResult.model_validate(result), [])

    assert text.startswith("**Paris** has the most rows: 2.")
    assert "| Paris | 2 |" in text


def test_an_overview_lists_the_columns_and_a_look_at_the_rows_only_these() -> None:
    profile = [{"name": "region", "kind": "text", "missing": 3, "distinct": 4, "told": "North, South, …"}]
    seen = RESULT | {"profile": profile, "column_count": 20, "group": None, "groups": []}
    rows = RESULT | {"head": [["2024-01-01", "North", "5"]], "figures": [], "group": None, "groups": []}

    overview = render_table_answer(TableResult.model_validate(seen), [])
    first = render_table_answer(TableResult.model_validate(rows), [])

    assert "has 1,200 rows and 20 columns." in overview
    assert "| region | text | North, South, … | 4 | 3 |" in overview
    assert "19 more columns are not shown." in overview
    assert "| 2024-01-01 | North | 5 |" in first
    assert "total" not in first


def test_the_row_of_a_peak_and_a_correlation_are_told() -> None:
    peaks = {"revenue": {"max": "region North"}}
    totals = RESULT["totals"] | {"units": {"max": 3, "count": 2}}
    result = RESULT | {"figures": ["max"], "peaks": peaks, "by": [], "group": None, "groups": []}

    text = render_table_answer(TableResult.model_validate(result | {"totals": totals, "correlation": -0.82}), [])

    assert "- **revenue**: highest 9,000 (region North)" in text
    assert "- correlation of revenue and units: -0.82 (strong, negative)" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (1234567, "1,234,567"),
        (1234.5, "1,234.50"),
        (-2.345, "-2.35"),
        (0.12345, "0.1235"),
        (0.5, "0.5"),
    ],
)
def test_numbers_are_readable(value: float | None, text: str) -> None:
    assert format_number(value) == text


def test_a_programs_output_is_quoted_cut_or_missed() -> None:
    ended = "The program ended well after 12 ms."

    assert render_program_output(f"{ended}\n--- printed ---\n  42\n", ok=True).endswith("It printed:\n\n```\n  42\n```")
    assert render_program_output(ended, ok=True) == "Your program ran and printed nothing."
    assert render_program_output(f"{ended}\nNot kept: a.csv.", ok=True).endswith("printed nothing.\n\nNot kept: a.csv.")
    assert len(render_program_output(f"{ended}\n--- printed ---\n{'x' * 10_000}", ok=True)) < 3_200
    assert "ran into an error" in render_program_output("NameError: x", ok=False)


def test_the_next_questions_fit_the_table() -> None:
    questions = suggest_questions(TableResult.model_validate(RESULT))

    assert questions == ("Which was best?", "Show revenue by product", "Show revenue per month")


def test_the_introduction_says_how_to_attach_a_real_model() -> None:
    text = render_capabilities()

    assert all(name in text for name in ("EVERTURN_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"))
    assert "no language model" in text
