"""The generated analysis program, run by a real interpreter with pandas on clean and on messy tables."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from chat_proc.models.offline.answers import TableResult, render_table_answer, try_read_result
from chat_proc.models.offline.programs import build_analysis
from chat_proc.models.offline.reading import Attachment

PYTHON = Path(__file__).parents[4] / ".venv-sandbox" / "bin" / "python"
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


def run(folder: Path, table: str | bytes, question: str, *, before: str = "", with_chart: bool = True) -> Ran:
    source = folder / PATH
    source.parent.mkdir(parents=True)
    source.write_bytes(table if isinstance(table, bytes) else table.encode())
    attachment = Attachment("sales.csv", "text/csv", PATH, "")
    program = build_analysis(attachment, name="analyse_sales", question=question, before=before, with_chart=with_chart)
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


def test_a_value_in_the_question_filters_and_the_question_before_gives_the_measure(tmp_path: Path) -> None:
    ran = run(tmp_path, SALES, "And only for North?", before="total revenue by product")

    assert ran.result.filters == {"region": ("North",)}
    assert ran.result.used_rows == 2
    assert ran.result.totals["revenue"].total == pytest.approx(1150.5)


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
    ],
)
def test_messy_tables_give_right_totals(tmp_path: Path, table: str | bytes, total: float) -> None:
    ran = run(tmp_path, table, "total Umsatz", with_chart=False)

    assert ran.result.totals["Umsatz"].total == pytest.approx(total)


def test_text_alone_is_counted(tmp_path: Path) -> None:
    ran = run(tmp_path, "name,city\nx,Paris\ny,Rome\nz,Paris\n", "how many per city")

    assert [(row.name, row.rows) for row in ran.result.groups] == [("Paris", 2), ("Rome", 1)]


@pytest.mark.parametrize("table", ["", "\n\n", "a,b\n"])
def test_a_table_without_rows_is_told(tmp_path: Path, table: str) -> None:
    assert run(tmp_path, table, "total").result.error == "The file has no rows."


def test_a_wide_and_long_table_prints_a_bounded_result(tmp_path: Path) -> None:
    heads = ",".join(["group", *(f"a rather long column name {n}" for n in range(40))])
    rows = "\n".join(f"group number {n % 500}," + ",".join(str(n) for _ in range(40)) for n in range(2_000))

    ran = run(tmp_path, f"{heads}\n{rows}\n", "everything by group", with_chart=False)

    assert len(ran.printed) < 4_000
    assert ran.result.group_count == 500
