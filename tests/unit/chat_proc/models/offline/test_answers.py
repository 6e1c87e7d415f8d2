"""Figures become sentences and tables with readable numbers."""

import json

import pytest

from chat_proc.models.offline.answers import (
    TableResult,
    format_number,
    render_capabilities,
    render_program_output,
    render_table_answer,
    suggest_questions,
    try_read_result,
)

RESULT = {
    "file": "sales.csv",
    "rows": 1200,
    "used_rows": 1200,
    "columns": ["date", "region", "revenue"],
    "filters": {},
    "figures": ["total"],
    "totals": {"revenue": {"total": 1234567.891, "mean": 1028.8, "min": -5, "max": 9000, "count": 1199, "missing": 1}},
    "group": "region",
    "group_count": 2,
    "groups": [
        {"name": "North|West", "rows": 700, "values": {"revenue": {"total": 1000000, "mean": 1.5}}},
        {"name": "South", "rows": 500, "values": {"revenue": {"total": 234567.891, "mean": None}}},
    ],
}


def test_the_answer_has_the_asked_figures_a_table_and_the_extremes() -> None:
    text = render_table_answer(TableResult.model_validate(RESULT), ["outputs/sales.png"])

    assert text == (
        "**sales.csv** has 1,200 rows and the columns date, region, revenue.\n"
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

    assert "Only the 500 rows where region is South count below." in text
    assert "Shown are 2 of 40; the table file has all." in text
    assert "Highest" not in text


def test_a_file_without_rows_is_told() -> None:
    text = render_table_answer(TableResult(error="The file has no rows."), [])

    assert text == "I could not analyse the file. The file has no rows."


def test_a_result_is_found_in_a_report_and_a_broken_one_is_not() -> None:
    report = f"warning: x\nRESULT {json.dumps(RESULT)}\n[artifacts]\nfi:turn_1.outputs/sales.png"

    assert try_read_result(report) == TableResult.model_validate(RESULT)
    assert try_read_result("RESULT {cut") is None
    assert try_read_result('RESULT {"rows": "many"}') is None
    assert try_read_result("nothing") is None


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
    assert "```\n42\n```" in render_program_output("42\n", ok=True)
    assert "printed nothing" in render_program_output("", ok=True)
    assert len(render_program_output("x" * 10_000, ok=True)) < 3_200
    assert "ran into an error" in render_program_output("NameError: x", ok=False)


def test_the_next_questions_fit_the_table() -> None:
    questions = suggest_questions(TableResult.model_validate(RESULT))

    assert questions == ("Show revenue by date", "What is the average revenue?")


def test_the_introduction_says_how_to_attach_a_real_model() -> None:
    text = render_capabilities()

    assert all(name in text for name in ("EVERTURN_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"))
    assert "no language model" in text
