"""The program by which the demo analyses a table, run as in the sandbox, on clean and on messy tables."""

import os
import subprocess
from pathlib import Path

import pytest

from chat_proc.demo import table

PYTHON = Path(__file__).parents[4] / ".venv-sandbox" / "bin" / "python"
PNG = b"\x89PNG\r\n\x1a\n"
SALES = """date,region,product,units,revenue
2024-01-03,North,Tea,10,"1,200.50"
2024-01-10,South,Coffee,5,$600.00
2024-02-01,North,Coffee,,(50.00)
2024-02-11,West,Tea,7,"1,100,000.25"
2024-03-01,Süd,Tea,3,
"""


def analyse(folder: Path, data: str | bytes, *questions: str) -> list[str]:
    """The answer, without the files."""
    file = folder / "sales.csv"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    found = table.read_table(str(file))
    question = table.read_questions(list(questions), found)
    return table.describe(found, table.build_groups(found, question), question)


def run(folder: Path, *calls: tuple[str, str, str]) -> subprocess.CompletedProcess[str]:
    """The program, with a call for each name, table and question."""
    program = Path(table.__file__).read_text(encoding="utf-8") + "\n\n"
    for name, data, question in calls:
        (folder / f"{name}.csv").write_text(data)
        program += f"main({str(folder / name)!r} + '.csv', {str(folder / 'outputs' / name)!r}, [{question!r}])\n"
    (folder / "program.py").write_text(program, encoding="utf-8")
    environment = {"MPLCONFIGDIR": str(folder), "PATH": os.defpath, "PYTHONUTF8": "1"}
    return subprocess.run(
        [PYTHON, folder / "program.py"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(not PYTHON.exists(), reason="needs the sandbox environment .venv-sandbox (make setup)")
def test_the_program_prints_the_answer_and_writes_a_chart_and_a_table(tmp_path: Path) -> None:
    odd = {
        "words": "only text\nx\ny\n",
        "twice": "a,a,,$b\n1,2,3,4\n5\n6,7,8,9,10\n",
        "dates": "when,n\n2024-13-45,1\nx,2\n",
        "numbers": "n\n1e400\nnan\ninf\n",
        "quote": 'q,n\n"never closed,1\nb,2\n',
        "wide": "a," * 300 + "z\n" + "1," * 300 + "2\n",
        "signs": "$a,n\n$x_{,1\n$y,-2\n",
    }
    asked = {"bars": "revenue by region", "line": "revenue per month", "pie": "units by product as a pie"}
    calls = [(name, SALES, text) for name, text in asked.items()] + [(name, data, "pie") for name, data in odd.items()]

    done = run(tmp_path, *calls)

    assert done.returncode == 0, done.stderr
    assert "**West** has the highest total revenue: 1,100,000.25." in done.stdout
    charts = {name: (tmp_path / "outputs" / f"{name}.png").read_bytes() for name, _, _ in calls}
    assert all(chart.startswith(PNG) for chart in charts.values())
    assert len({charts[name] for name in asked}) == 3
    figures = (tmp_path / "outputs" / "bars.csv").read_text().splitlines()
    assert figures[0] == "region,rows,total revenue,average revenue,lowest revenue,highest revenue"
    assert figures[2] == "North,2,1150.5,575.25,-50.0,1200.5"


def test_totals_by_a_column(tmp_path: Path) -> None:
    assert analyse(tmp_path, SALES, "What is the total revenue by region? Draw a chart.") == [
        "**West** has the highest total revenue: 1,100,000.25.",
        "**South** has the lowest: 600.",
        "",
        "| region | total | average | rows |",
        "| --- | --- | --- | --- |",
        "| West | 1,100,000.25 | 1,100,000.25 | 1 |",
        "| North | 1,150.5 | 575.25 | 2 |",
        "| South | 600 | 600 | 1 |",
        "| Süd | - | - | 1 |",
        "",
        "All 5 rows of **sales.csv**: total revenue 1,101,750.75, average revenue 275,437.69, lowest revenue -50, "
        "highest revenue 1,100,000.25, 1 missing.",
    ]


@pytest.mark.parametrize(
    ("questions", "head", "first"),
    [
        (["units per month"], "| date | total | average | rows |", "| 2024-01 | 15 | 7.5 | 2 |"),
        (["average units by year"], "| date | average | rows |", "| 2024 | 6.25 | 5 |"),
        (["top 1 products by units as a pie"], "| product | total | average | rows |", "| Tea | 20 | 6.67 | 3 |"),
        (["total units by region", "and the average?"], "| region | average | rows |", "| North | 10 | 2 |"),
        (["average units by region", "now by product"], "| product | average | rows |", "| Tea | 6.67 | 3 |"),
        (["units by region", "which was best?"], "| region | total | average | rows |", "| North | 10 | 10 | 2 |"),
        (["lowest units"], "| region | lowest | average | rows |", "| North | 10 | 10 | 2 |"),
        (["revenue by units"], "| units | total | average | rows |", "| 7 | 1,100,000.25 | 1,100,000.25 | 1 |"),
    ],
)
def test_a_question_names_columns_figures_and_periods(
    tmp_path: Path, questions: list[str], head: str, first: str
) -> None:
    lines = analyse(tmp_path, SALES, *questions)

    assert lines[3] == head
    assert lines[5] == first


def test_a_top_list_shows_as_many_as_asked_for(tmp_path: Path) -> None:
    lines = analyse(tmp_path, SALES, "top 2 regions by units")

    assert [line.split(" | ")[0] for line in lines[5:8]] == ["| North", "| West", ""]
    assert "Showing 2 of 4." in lines


@pytest.mark.parametrize("question", ["What's in this file?", "Describe it", "Hello"])
def test_without_a_question_about_figures_the_columns_are_described(tmp_path: Path, question: str) -> None:
    assert analyse(tmp_path, SALES, question) == [
        "**sales.csv** has 5 rows and 5 columns:",
        "",
        "| column | kind | values | missing |",
        "| --- | --- | --- | --- |",
        "| date | date | 2024-01-03 to 2024-03-01 | 0 |",
        "| region | text | 4 different, such as North, South, Süd | 0 |",
        "| product | text | 2 different, such as Coffee, Tea | 0 |",
        "| units | number | 3 to 10 | 1 |",
        "| revenue | number | -50 to 1,100,000.25 | 1 |",
    ]


@pytest.mark.parametrize(
    "data",
    [
        "Ort;Betrag\nÖrebro;1.200,50\nB;2,25\n".encode("cp1252"),
        "Ort\tBetrag\r\nÖrebro\t1.200,50\r\nB\t2,25\r\n".encode("utf-16"),
        "\ufeffOrt,Betrag\nÖrebro,1200.50 €\nB,2.25\n".encode(),
        "Ort,Betrag\rÖrebro,1200.50\rB,2.25\r".encode(),
    ],
)
def test_encodings_separators_and_decimal_commas_are_recognized(tmp_path: Path, data: bytes) -> None:
    assert "| Örebro | 1,200.5 | 1,200.5 | 1 |" in analyse(tmp_path, data, "Betrag by Ort")


@pytest.mark.parametrize("day", ["2024-02-03", "2024-02-03T10:00:00Z", "03.02.2024", "02/03/2024", "28/02/2024"])
def test_dates_of_several_formats_are_recognized(tmp_path: Path, day: str) -> None:
    assert "| 2024-02 | 7 | 7 | 1 |" in analyse(tmp_path, f"day,n\n{day},7\n", "n per month")


@pytest.mark.parametrize("data", ["", "a,b\n", "\0\0", "\n\n"])
def test_a_file_without_rows_ends_the_program_with_the_reason(tmp_path: Path, data: str) -> None:
    with pytest.raises(SystemExit, match=r"The file has no rows\."):
        analyse(tmp_path, data, "total?")


def test_cells_are_no_markup(tmp_path: Path) -> None:
    lines = analyse(tmp_path, "name,n\n<b>|x|</b>,1\n[a](http://b),2\n", "n by name")

    assert r"| \<b\>\|x\|\</b\> | 1 | 1 | 1 |" in lines
    assert r"| \[a\](http://b) | 2 | 2 | 1 |" in lines
