"""The generated analysis program, run by a real interpreter with pandas on clean and on messy tables."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from chat_proc.models.offline.answers import render_table_answer
from chat_proc.models.offline.programs import Analysis, Base, build_analysis
from chat_proc.models.offline.reading import Attachment
from chat_proc.models.offline.results import TableResult, try_read_result

PYTHON = Path(__file__).parents[4] / ".venv-sandbox" / "bin" / "python"
NOTHING_BEFORE = Base()
PATH = "turn_1/attachments/sales.csv"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="needs the sandbox environment .venv-sandbox (make setup)")

SALES = """date,region,product,units,revenue
2024-01-03,North,Tea,10,"1,200.50"
2024-01-10,South,Coffee,5,$600.00
2024-02-01,North,Coffee,,(50.00)
2024-02-11,West,Tea,7,"1,100,000.25"
2024-03-01,Süd,Tea,3,
"""


@dataclass(frozen=True)
class Ran:
    result: TableResult
    printed: str
    out: Path


def run(
    folder: Path,
    table: str | bytes,
    question: str,
    *,
    base: Base = NOTHING_BEFORE,
    about: str | None = None,
    with_chart: bool = True,
) -> Ran:
    source = folder / PATH
    source.parent.mkdir(parents=True)
    source.write_bytes(table if isinstance(table, bytes) else table.encode())
    attachment = Attachment("sales.csv", "text/csv", PATH, "")
    analysis = Analysis(attachment, question, base, about)
    program = build_analysis(analysis, name="analyse_sales", with_chart=with_chart)
    (folder / "program.py").write_text(program.code, encoding="utf-8")
    out = folder / "out"
    environment = {"WORKDIR": str(folder), "OUTPUT_DIR": str(out), "MPLCONFIGDIR": str(folder), "PATH": os.defpath}
    done = subprocess.run(
        [PYTHON, folder / "program.py"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    result = try_read_result(done.stdout)
    assert result is not None, done.stderr
    return Ran(result, done.stdout, out / "outputs")


def test_totals_by_a_column_with_chart_and_table(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "What is the total revenue by region?")

    assert ran.result.totals["revenue"].total == pytest.approx(1_101_750.75)
    assert (ran.result.totals["revenue"].count, ran.result.totals["revenue"].missing) == (4, 1)
    assert [(row.name, row.rows) for row in ran.result.groups] == [("West", 1), ("North", 2), ("South", 1), ("Süd", 1)]
    assert (ran.out / "sales.png").read_bytes().startswith(b"\x89PNG")
    assert (ran.out / "sales.csv").read_text().splitlines()[0].startswith("region,rows,revenue total,revenue mean")
    assert "| North | 2 | 1,150.50 |" in render_table_answer(ran.result, [])


def test_figures_over_time_are_in_order_and_a_line(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "units per month")

    assert ran.result.group == "date (month)"
    assert [row.name for row in ran.result.groups] == ["2024-01", "2024-02", "2024-03"]
    assert json.loads(ran.printed.removeprefix("RESULT "))["chart"] == "line"


def test_a_value_in_the_question_filters_and_the_question_before_gives_the_rest(tmp_path: Path) -> None:
    base = Base(by=(("product", None),), measures=("revenue",), figures=("total",))

    ran = run(tmp_path, SALES, "And only for North?", base=base, about="North")

    assert ran.result.filters == {"region": ("North",)}
    assert ran.result.used_rows == 2
    assert ran.result.totals["revenue"].total == pytest.approx(1150.5)
    assert [row.name for row in ran.result.groups] == ["Tea", "Coffee"]


@pytest.mark.parametrize(
    ("question", "group", "measure", "figures"),
    [
        ("now as averages", "product", "revenue", ("mean",)),
        ("show it per month", "date (month)", "revenue", ("total",)),
        ("plot units instead", "product", "units", ("total",)),
        ("and per region?", "region", "revenue", ("total",)),
    ],
)
def test_a_followup_changes_one_thing_and_keeps_the_others(
    tmp_path: Path, question: str, group: str, measure: str, figures: tuple[str, ...]
) -> None:
    base = Base((("product", None),), ("revenue",), ("total",), {"region": ("not West",)})

    ran = run(tmp_path, SALES, question, base=base, with_chart=False)

    assert (ran.result.group, list(ran.result.totals), ran.result.figures) == (group, [measure], figures)
    assert (ran.result.used_rows, ran.result.filters) == (4, {"region": ("not West",)})


def test_a_value_that_is_nowhere_is_told_with_those_there_are(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "what about Atlantis?", about="Atlantis")

    assert "nothing called “Atlantis”" in (ran.result.error or "")
    assert "region: North, South, West, Süd" in (ran.result.error or "")


@pytest.mark.parametrize(
    ("question", "used_rows"),
    [
        ("revenue in February", 2),
        ("revenue in 2024", 5),
        ("revenue without North", 3),
        ("revenue above 600", 2),
        ("revenue at least 600", 3),
        ("units under 6", 2),
    ],
)
def test_rows_are_chosen_by_time_by_size_and_by_exception(tmp_path: Path, question: str, used_rows: int) -> None:
    assert run(tmp_path, SALES, question, with_chart=False).result.used_rows == used_rows


def test_when_no_row_is_left_the_answer_says_which_were_asked_for(tmp_path: Path) -> None:
    assert "revenue is above 9,999,999" in (run(tmp_path, SALES, "revenue above 9,999,999").result.error or "")


def test_the_best_come_first_and_are_as_many_as_asked(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "top 2 regions by revenue", with_chart=False)

    assert [row.name for row in ran.result.groups] == ["West", "North"]
    assert (ran.result.ranking, ran.result.group_count) == (("high", 2), 4)


def test_two_columns_group_together(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "revenue by region and product", with_chart=False)

    assert ran.result.group == "region and product"
    assert "North / Tea" in [row.name for row in ran.result.groups]


def test_the_row_of_the_highest_value_is_named(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "what is the highest revenue?", with_chart=False)

    assert ran.result.peaks["revenue"]["max"].startswith("date 2024-02-11, region West")


def test_an_overview_tells_kinds_ranges_and_what_is_missing(tmp_path: Path) -> None:
    profile = {column.name: column for column in run(tmp_path, SALES, "Summarize this file").result.profile}

    assert [column.kind for column in profile.values()] == ["date", "text", "text", "number", "number"]
    assert profile["date"].told == "2024-01-03 to 2024-03-01"
    assert (profile["units"].missing, profile["region"].distinct) == (1, 4)


def test_the_first_rows_are_shown_as_they_are(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "show the first 2 rows")

    assert ran.result.head[0] == ("2024-01-03", "North", "Tea", "10", "1,200.50")
    assert len(ran.result.head) == 2


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("units by product as a pie chart", "pie"),
        ("histogram of units", "hist"),
        ("scatter plot of units and revenue", "scatter"),
        ("revenue per month as bars", "bar"),
        ("average revenue per month", "line"),
    ],
)
def test_the_chart_is_of_the_kind_asked_for_when_that_can_be_drawn(tmp_path: Path, question: str, kind: str) -> None:
    ran = run(tmp_path, SALES, question)

    assert json.loads(ran.printed.removeprefix("RESULT "))["chart"] == kind
    assert (ran.out / "sales.png").stat().st_size > 1_000


def test_without_named_columns_all_numbers_are_told(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "What do you see?", with_chart=False)

    assert list(ran.result.totals) == ["units", "revenue"]
    assert ran.result.group is None
    assert [path.name for path in ran.out.iterdir()] == ["sales.csv"]


@pytest.mark.parametrize(
    ("table", "total"),
    [
        ("Datum;Umsatz\n03.01.2024;1.200,50\n13.02.2024;7,5\n", 1208.0),
        ("Datum\tUmsatz\n2024\t1 200,50\n2025\t7\n".replace("1 200", "1\u202f200"), 1207.5),
        ("\ufeffName|Umsatz\na|10%\nb|-5.5%\n", 4.5),
        ("Umsatz\n1'000\n2'000.5\n", 3000.5),
        ("Umsatz,Umsatz\n1,2\n3,4\n", 4.0),
        ("Umsatz,b\n1,2\n\n3\n4,5,6,7\n", 8.0),
        ("Name,Umsatz\nÄpfel,5\n".encode("cp1252"), 5.0),
        ("Name,Umsatz\nÄpfel,5\n".encode("utf-16"), 5.0),
        ("Umsatz,x\n1,inf\n2,nan\n", 3.0),
        ("Umsatz\n1.200.000\n2.000.000\n", 3_200_000.0),
        ("Umsatz\nn/a\n-\n4\n", 4.0),
        ("Umsatz\n€ 4,50\n5,50 €\n", 10.0),
        ("Report of 2024\n\nName,Umsatz\na,1\nb,2\n", 3.0),
        ('Name;Umsatz\n"a; b";1,5\n"c\nd";2,5\n', 4.0),
    ],
)
def test_messy_tables_give_right_totals(tmp_path: Path, table: str | bytes, total: float) -> None:
    ran = run(tmp_path, table, "total Umsatz", with_chart=False)

    assert ran.result.totals["Umsatz"].total == pytest.approx(total)


def test_text_alone_is_counted(tmp_path: Path) -> None:
    ran = run(tmp_path, "name,city\nx,Paris\ny,Rome\nz,Paris\n", "how many per city")

    assert [(row.name, row.rows) for row in ran.result.groups] == [("Paris", 2), ("Rome", 1)]


def test_a_group_without_numbers_has_no_total(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "revenue by region", with_chart=False)

    assert ran.result.groups[-1].values["revenue"].total is None


def test_a_week_is_named_by_its_first_day(tmp_path: Path) -> None:
    assert run(tmp_path, SALES, "weekly units", with_chart=False).result.groups[0].name == "2024-01-01"


@pytest.mark.parametrize(
    ("dates", "first"),
    [
        ("01.02.2024\n05.03.2024", "2024-02"),
        ("01/02/2024\n01/25/2024", "2024-01"),
        ("25/01/2024\n01/02/2024", "2024-01"),
        ("Jan 5, 2024\nMar 6, 2024".replace(",", ""), "2024-01"),
        ("2024-05\n2024-06", "2024-05"),
    ],
)
def test_dates_are_read_in_many_forms(tmp_path: Path, dates: str, first: str) -> None:
    table = "when,n\n" + "\n".join(f"{date},1" for date in dates.split("\n"))

    assert run(tmp_path, table, "n per month", with_chart=False).result.groups[0].name == first


@pytest.mark.parametrize("table", ["", "\n\n", "a,b\n"])
def test_a_table_without_rows_is_told(tmp_path: Path, table: str) -> None:
    assert run(tmp_path, table, "total").result.error == "The file has no rows."


def test_a_wide_and_long_table_prints_a_bounded_result(tmp_path: Path) -> None:
    heads = ",".join(["group", *(f"a rather long column name {n}" for n in range(40))])
    rows = "\n".join(f"group number {n % 500}," + ",".join(str(n) for _ in range(40)) for n in range(2_000))

    ran = run(tmp_path, f"{heads}\n{rows}\n", "everything by group", with_chart=False)

    assert len(ran.printed) < 4_000
    assert ran.result.group_count == 500
