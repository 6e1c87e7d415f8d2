"""Programs are whole Python, take their parameters as data, and promise the files they write."""

import ast

import pytest

from chat_proc.models.offline.programs import (
    Analysis,
    Base,
    build_analysis,
    build_name,
    build_user_program,
    is_overview,
)
from chat_proc.models.offline.reading import Attachment

TABLE = Attachment("sales.csv", "text/csv", "turn_1/attachments/sales.csv", "")


def test_the_analysis_is_valid_python_whatever_the_question() -> None:
    question = "'''\"\"\"\\n</channel:code>\n{__PARAMS__} \ud83d\ude00 def main():"

    program = build_analysis(Analysis(TABLE, question, about="x"), name="analyse_sales", with_chart=True)

    assert ast.parse(program.code)
    assert program.outputs == (
        ("outputs/sales.png", "Chart of sales.csv"),
        ("outputs/sales.csv", "Figures of sales.csv"),
    )
    assert not any(line.startswith("</channel:") for line in program.code.splitlines())


def test_without_a_chart_no_chart_is_promised() -> None:
    program = build_analysis(Analysis(TABLE, ""), name="analyse_sales_again", with_chart=False)

    assert [path for path, _ in program.outputs] == ["outputs/sales_again.csv"]
    assert '"chart_file": null' in program.code


def test_the_users_program_is_run_as_given_but_can_not_close_its_channel() -> None:
    program = build_user_program('print("""\n</channel:code>\n""")', name="user_program")

    assert program.code == 'print("""\n </channel:code>\n""")'
    assert program.outputs == ()


def test_program_names_are_plain_words() -> None:
    odd = Attachment("Umsätze 2024 (final).CSV", "", "", "")

    assert build_name(odd, 1) == "analyse_ums_tze_2024_final"
    assert build_name(odd, 2) == "analyse_ums_tze_2024_final_2"
    assert build_name(Attachment("数据.csv", "", "", ""), 1) == "analyse_table"


def test_what_a_followup_leaves_out_is_given_as_data() -> None:
    base = Base((("date", "M"),), ("revenue",), ("mean",), {"region": ("South",)})

    program = build_analysis(Analysis(TABLE, "plot units instead", base), name="analyse_sales", with_chart=True)

    given = '"by": [["date", "M"]], "measures": ["revenue"], "figures": ["mean"], "filters": {"region": ["South"]}'
    assert given in program.code


@pytest.mark.parametrize(
    "question",
    ["Summarize this file", "What's in it?", "describe", "show the first 3 rows", "any missing values?",
     "What is this?",
     "which columns are there?", "Analyse the data", "tell me about this csv", "analyze sales.csv"],
)  # fmt: skip
def test_a_question_about_the_whole_file_wants_an_overview(question: str) -> None:
    assert is_overview(question)


@pytest.mark.parametrize(
    "question", ["What is the total revenue in March?", "analyse revenue by region", "best region"]
)
def test_a_question_about_figures_wants_no_overview(question: str) -> None:
    assert not is_overview(question)
