"""Documents that programs make with the libraries of their environment, each opened by other means than it was made."""

import io
import re
import struct
import zipfile
from typing import Any

import pytest

INPUTS = {
    "turn_1/attachments/sales.csv": b"region,amount\nnorth,10\nsouth,32\n",
    "turn_1/external/followup/attachments/m1/note.txt": "Grüße".encode(),
}
NAMES = ("table.xlsx", "letter.docx", "slides.pptx", "report.pdf", "chart.png", "photo.png", "merged.pdf")

MAKE = """
import docx, openpyxl, pandas, pptx, pypdf
import matplotlib.pyplot as plt
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

table = pandas.read_csv("turn_1/attachments/sales.csv")
note = open("turn_1/external/followup/attachments/m1/note.txt", encoding="utf-8").read()
table.to_excel(OUTPUT_DIR + "/table.xlsx", index=False)
letter = docx.Document()
letter.add_paragraph(note)
letter.save(OUTPUT_DIR + "/letter.docx")
slides = pptx.Presentation()
slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = note
slides.save(OUTPUT_DIR + "/slides.pptx")
canvas = Canvas(OUTPUT_DIR + "/report.pdf")
for page in range(3):
    canvas.drawString(72, 720, f"page {page} of the report")
    canvas.showPage()
canvas.save()
writer = pypdf.PdfWriter()
for _ in range(2): writer.append(OUTPUT_DIR + "/report.pdf")
writer.write(OUTPUT_DIR + "/merged.pdf")
table.plot.bar(x="region")
plt.gcf().set_size_inches(4, 3)
plt.savefig(OUTPUT_DIR + "/chart.png", dpi=100)
Image.new("RGB", (20, 10), "red").save(OUTPUT_DIR + "/photo.png")
print(pypdf.PdfReader(OUTPUT_DIR + "/merged.pdf").pages[4].extract_text().strip())
"""

_made: dict[str, dict[str, bytes]] = {}


@pytest.fixture
async def made(run: Any, sandbox: Any) -> dict[str, bytes]:
    """All documents, made once in each kind of sandbox."""
    launcher = sandbox.posture.launcher
    if launcher not in _made:
        result = await run(MAKE, outputs=NAMES, inputs=INPUTS, timeout_s=50)
        assert result.ok, result.report_text
        assert result.user_out_tail == "page 1 of the report\n"
        _made[launcher] = {artifact.filepath: artifact.body for artifact in result.artifacts}
    return _made[launcher]


def read_member(body: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        return archive.read(name).decode()


def count_pages(body: bytes) -> int:
    assert body.startswith(b"%PDF-")
    assert body.rstrip().endswith(b"%%EOF")
    return len(re.findall(rb"/Type\s*/Page\b", body))


def read_size(body: bytes) -> tuple[int, int]:
    """Width and height in the header of a PNG file."""
    assert body.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">2I", body[16:24])


async def test_a_workbook_has_the_rows_of_an_attachment(made):
    sheet = read_member(made["table.xlsx"], "xl/worksheets/sheet1.xml")

    assert sheet.count("<row ") == 3
    assert "<v>32</v>" in sheet


async def test_a_letter_and_slides_have_the_text_of_a_signals_attachment(made):
    assert "Grüße" in read_member(made["letter.docx"], "word/document.xml")
    assert "Grüße" in read_member(made["slides.pptx"], "ppt/slides/slide1.xml")


async def test_a_pdf_has_its_pages(made):
    assert count_pages(made["report.pdf"]) == 3
    assert count_pages(made["merged.pdf"]) == 6


async def test_pictures_have_their_size(made):
    assert read_size(made["chart.png"]) == (400, 300)
    assert read_size(made["photo.png"]) == (20, 10)
