"""The examples in the platform's skills run as they stand, with the libraries that programs have."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from chat_proc.skills.reader import load_platform_skills
from everturn.skills.model import Skill

PYTHON = Path(__file__).parents[4] / ".venv-sandbox" / "bin" / "python"
LIMIT_S = 60
SKILLS = {skill.name: skill for skill in load_platform_skills()}
IMAGE = "from PIL import Image; Image.new('RGB', (1600, 900), 'navy').save({path!r})\n"


class Runner:
    """Runs programs with the files of a skill, as a turn that pulled it does."""

    def __init__(self, folder: Path, skill: Skill) -> None:
        self.skill = skill
        self.work, self.output = folder / "work", folder / "output"
        for file in skill.files.values():
            target = self.work / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.data)
        self.scripts = self.work / "skills" / skill.id / "scripts"

    @property
    def example(self) -> str:
        """The program in the skill's instructions."""
        found = re.search(r"```python\n(.*?)```", self.skill.files["SKILL.md"].decode(), re.DOTALL)
        assert found is not None
        return found[1]

    def run(self, program: str) -> str:
        head = f"WORKDIR, OUTPUT_DIR = {str(self.work)!r}, {str(self.output)!r}\n"
        done = subprocess.run(
            [str(PYTHON), "-I", "-c", head + program],
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.work), "MPLBACKEND": "Agg"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def use(self, program: str) -> str:
        """Run a program that imports the scripts of the skill."""
        return self.run(f"import os, sys\nsys.path.insert(0, {str(self.scripts)!r})\n{program}")

    def make_image(self, path: str) -> None:
        (self.work / path).parent.mkdir(parents=True, exist_ok=True)
        self.run(IMAGE.format(path=str(self.work / path)))


@pytest.fixture
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    return Runner(tmp_path, SKILLS[request.param])


@pytest.mark.parametrize("runner", ["pdf-press"], indirect=True)
def test_the_example_makes_a_pdf_with_its_text_and_image(runner: Runner) -> None:
    runner.make_image("turn_.../outputs/chart.png")
    runner.run(runner.example)

    said = runner.run(
        "from pypdf import PdfReader\n"
        "pdf = PdfReader(f'{OUTPUT_DIR}/outputs/report.pdf')\n"
        "print(len(pdf.pages), pdf.metadata.title, len(pdf.pages[0].images), pdf.pages[0].extract_text())"
    )

    assert said.startswith("1 Sales in October 1 ")
    for text in ("Total 1,240 EUR, up 8 %.", "1,148", "North grew most.", "Amount by month"):
        assert text in said


@pytest.mark.parametrize("runner", ["pdf-press"], indirect=True)
def test_all_of_the_markup_is_laid_out_and_nothing_is_lost(runner: Runner) -> None:
    text = (
        "# Größe Ωμέγα Привет\n\nA <b>tag</b> & `code < 1` and [a link](https://a.example/?x=1&y=2).\nSame paragraph."
        "\n\n"
        "## Second\n1. one\n2. two\n\n```\nx = 1\n  y = 2\n```\n\n<!-- page -->\n\n### Third\n"
        "| A | B |\n|---|---:|\n" + "".join(f"| row {n} | {n} |\n" for n in range(200)) + "| only one |\n"
    )

    said = runner.use(
        f"from report import build_pdf\nbuild_pdf('a.pdf', {text!r}, page='letter', landscape=True)\n"
        "from pypdf import PdfReader\npdf = PdfReader('a.pdf')\n"
        "print(len(pdf.pages), '\\n'.join(page.extract_text() for page in pdf.pages))"
    )

    pages, _, rest = said.partition(" ")
    assert int(pages) > 5
    for part in (
        "Größe Ωμέγα Привет",
        "A <b>tag</b> & code < 1 and a link. Same paragraph.",
        "two",
        "  y = 2",
        "row 199",
    ):
        assert part in rest
    assert rest.count("row ") == 200 and "only one" in rest


@pytest.mark.parametrize("runner", ["pdf-press"], indirect=True)
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("build_pdf('a.pdf', '漢字')", "ValueError: The fonts lack the character '漢' (U+6F22)."),
        ("build_pdf('a.pdf', ' ')", "ValueError: The text is empty."),
        ("build_pdf('a.pdf', '![x](none.png)')", "none.png"),
    ],
)
def test_a_pdf_that_can_not_be_made_says_why(runner: Runner, call: str, error: str) -> None:
    said = runner.use(f"from report import build_pdf\ntry:\n    {call}\nexcept Exception as e:\n    print(repr(e), e)")

    assert error.partition(": ")[2] in said


DATA = (
    "import pandas as pd\n"
    "sales = pd.DataFrame({'day': pd.to_datetime(['2026-10-01', '2026-10-02']), 'amount': [1.5, None], "
    "'note': ['=1+1', 'ok']})\n"
    "by_month = pd.DataFrame({'month': ['October'], 'amount': [1240.0]})\n"
)
PRINT_BOOK = (
    "from openpyxl import load_workbook\n"
    "book = load_workbook(f'{OUTPUT_DIR}/outputs/sales.xlsx')\n"
    "for sheet in book: print(sheet.title, sheet.freeze_panes, [[cell.value for cell in row] for row in sheet])\n"
    "print([cell.data_type for cell in book['Rows'][2]], [cell.number_format for cell in book['Rows'][2]])"
)


@pytest.mark.parametrize("runner", ["xlsx-press"], indirect=True)
def test_the_example_makes_a_workbook_with_types_and_totals(runner: Runner) -> None:
    runner.run(DATA + runner.example)

    said = runner.run(PRINT_BOOK)

    assert "By month A2 [['month', 'amount'], ['October', 1240], [None, '=SUM(B2:B2)']]" in said
    assert (
        "[datetime.datetime(2026, 10, 1, 0, 0), 1.5, '=1+1'], [datetime.datetime(2026, 10, 2, 0, 0), None, 'ok']"
        in said
    )
    assert "['d', 'n', 's'] ['yyyy-mm-dd', '#,##0.00', 'General']" in said


@pytest.mark.parametrize("runner", ["xlsx-press"], indirect=True)
@pytest.mark.parametrize(
    ("sheets", "error"),
    [
        ("{}", "at least one sheet"),
        ("{'a/b': pd.DataFrame()}", "can't be named 'a/b'"),
        ("{'a': pd.DataFrame([[1, 2]], columns=['x', 'x'])}", "two columns of the same name"),
    ],
)
def test_a_workbook_that_excel_refuses_is_not_written(runner: Runner, sheets: str, error: str) -> None:
    said = runner.use(
        f"import pandas as pd\nfrom workbook import write_workbook\n"
        f"try:\n    write_workbook('a.xlsx', {sheets})\nexcept ValueError as e:\n    print(e)"
    )

    assert error in said


PRINT_DECK = (
    "from pptx import Presentation\n"
    "for slide in Presentation(f'{OUTPUT_DIR}/outputs/sales.pptx').slides:\n"
    "    notes = slide.notes_slide.notes_text_frame.text if slide.has_notes_slide else ''\n"
    "    texts = [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]\n"
    "    print(texts, sum(s.has_chart for s in slide.shapes), sum(s.has_table for s in slide.shapes), notes)"
)


@pytest.mark.parametrize("runner", ["pptx-press"], indirect=True)
def test_the_example_makes_a_deck_with_native_charts(runner: Runner) -> None:
    runner.make_image("turn_.../attachments/shop.jpg")
    runner.run(runner.example)

    lines = runner.run(PRINT_DECK).splitlines()

    assert lines[0] == "['Sales in October', 'Prepared for the board'] 0 0 "
    assert (
        lines[1]
        == "['Revenue grew by 8 %', '•  North grew most\\n•  South lost a customer'] 0 0 Mention the new contract."
    )
    assert lines[2:4] == ["['North leads in every month'] 0 1 ", "['Growth came in October'] 1 0 "]
    assert lines[4] == "['The new shop opened in May', 'The shop in May'] 0 0 "


@pytest.mark.parametrize("runner", ["pptx-press"], indirect=True)
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("add_bullets('T', ['x'] * 7)", "1 to 6 bullets, not 7"),
        ("add_bullets('x' * 81, ['x'])", "has 81 characters; at most 80 fit"),
        ("add_table('T', ['a'], [['b', 'c']])", "must have 1 cells"),
        ("add_chart('T', ['a'], {'s': [1, 2]})", "must have 1 values"),
        ("add_chart('T', ['a'], {'s': [1]}, kind='pie chart')", "use column, bar, line, pie"),
        ("save('a.pptx')", "There are no slides."),
    ],
)
def test_what_does_not_fit_on_a_slide_is_refused(runner: Runner, call: str, error: str) -> None:
    said = runner.use(f"from deck import Deck\ntry:\n    Deck().{call}\nexcept ValueError as e:\n    print(e)")

    assert error in said


@pytest.mark.parametrize("runner", ["pptx-press"], indirect=True)
def test_every_kind_of_chart_is_made_and_a_template_is_used(runner: Runner) -> None:
    said = runner.use(
        "from deck import Deck, KINDS\ndeck = Deck(accent='AA0000')\n"
        "for kind in KINDS: deck.add_chart(kind, ['a', 'b'], {'s': [1, 2], 't': [2, 3]}, kind=kind)\n"
        "deck.save('a.pptx')\nagain = Deck(template='a.pptx')\nagain.add_title('More')\n"
        "print(len(again.presentation.slides), again.width == deck.width)"
    )

    assert said == "5 True\n"
