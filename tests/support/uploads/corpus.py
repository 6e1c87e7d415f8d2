"""Ordinary files: those that packages and the system have brought to this machine, and some in published formats."""

import hashlib
import os
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from uploads.images import image, png_of_zeros
from uploads.pdfs import pdf, stream

REPOSITORY = Path(__file__).parents[3]
SANDBOX_PYTHON = REPOSITORY / ".venv-sandbox" / "bin" / "python"
ROOTS = (
    Path(sys.prefix),
    REPOSITORY / ".venv-sandbox",
    REPOSITORY / "clients" / "web" / "node_modules",
    Path("/usr/share"),
    Path("/usr/lib/python3"),
)
MAX_BYTES, MAX_PICTURE_BYTES = 10_000_000, 5_000_000
_TEXTS = (
    *("txt", "text", "md", "markdown", "rst", "html", "htm", "xml", "svg", "tex", "bib", "po", "log", "eml", "old"),
    *("json", "jsonl", "yaml", "yml", "toml", "ini", "cfg", "conf", "csv", "tsv", "map", "cmake", "m4", "sql"),
    *("py", "pyi", "js", "mjs", "cjs", "ts", "mts", "cts", "tsx", "jsx", "css", "scss", "vue", "sh", "bash"),
    *("pl", "pm", "rb", "lua", "go", "rs", "java", "kt", "c", "h", "cc", "cpp", "hpp", "cs", "r"),
)
_PLAIN_NAMES = frozenset(
    ("LICENSE", "LICENCE", "COPYING", "README", "NOTICE", "AUTHORS", "CHANGELOG", "METADATA", "RECORD", "copyright")
)
_PICTURES, _DOCUMENTS = ("png", "jpg", "jpeg", "gif", "webp"), ("pdf", "docx", "pptx", "xlsx")
_QUOTAS = dict.fromkeys(_TEXTS, 20) | dict.fromkeys(_PICTURES, 60) | dict.fromkeys(_DOCUMENTS, 60) | {"md": 120, "": 40}


def find_files() -> list[Path]:
    """A fixed number of each kind, chosen by the hash of the path under the root: always the same on one machine."""
    found: dict[str, list[tuple[bytes, Path]]] = defaultdict(list)
    for root in ROOTS:
        for path in _walk(root):
            kind = path.suffix.lower().removeprefix(".") if path.name not in _PLAIN_NAMES else ""
            if (kind or path.name in _PLAIN_NAMES) and kind in _QUOTAS and _fits(path, kind):
                found[kind].append((hashlib.sha256(path.relative_to(root).as_posix().encode()).digest(), path))
    return [path for kind, paths in sorted(found.items()) for _, path in sorted(paths)[: _QUOTAS[kind]]]


def _walk(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names)


def _fits(path: Path, kind: str) -> bool:
    """Whether it is a readable file that is not too large."""
    if path.is_symlink() or not os.access(path, os.R_OK):
        return False
    return 0 < path.stat().st_size <= (MAX_PICTURE_BYTES if kind in _PICTURES else MAX_BYTES)


def build_files(folder: Path) -> Mapping[str, bytes]:
    """Files as phones, Office programs, editors and viewers write or accept them, by their names."""
    german, japanese = (
        "Name;Straße;Größe\nMüller;Königsallee;größer\n",
        "氏名,住所\n山田太郎,東京都\nこれは日本語です。\n",
    )
    drawn = pdf(stream(b"0 0 m 9 9 l S"), page=b"/Contents 4 0 R")
    return {
        **_write_documents(folder),
        "samsung.jpg": image("jpeg", (64, 48)) + samsung_trailer(),
        "motion.jpg": image("jpeg", (64, 48)) + b"\0\0\0\x18ftypmp42\0\0\0\0isommp42" + bytes(range(256)) * 20,
        "ultra_hdr.jpg": image("jpeg", (64, 48)) + image("jpeg", (16, 12)),
        "tiny.jpg": image("jpeg", (2, 2)),
        "camera.png": png_of_zeros(5472, 3648),
        "scan.png": png_of_zeros(7016, 4960),
        "large.webp": image("webp", (2560, 1920)),
        "old bytes behind.png": image("png") + image("png", (30, 30))[20:],
        "narrow.gif": image("gif", (61, 100)),
        "wrong startxref.pdf": drawn.replace(b"startxref\n", b"startxref\n9"),
        "blank lines.pdf": b"\n\n" + drawn,
        "cp1252.csv": german.encode("cp1252"),
        "excel unicode.txt": german.replace(";", "\t").encode("utf-16"),
        "utf16be.txt": b"\xfe\xff" + german.encode("utf-16-be"),
        "shift_jis.csv": japanese.encode("cp932"),
        "iso-2022-jp.eml": japanese.encode("iso2022_jp"),
        "euc-jp.txt": japanese.encode("euc_jp"),
        "koi8-r.txt": "Привет, мир. Это проверка текста.\n".encode("koi8_r"),
        "with a mark.csv": german.encode("utf-8-sig"),
        "server.log.1": b"2026-01-01 started\n",
        "notes.old": b"some notes\n",
        "report v1.00": b"a report\n",
        "readme.md": b"<h1 align=center>Title</h1>\n\nSome *words*.\n",
        "page.html": b"<!DOCTYPE html><html><body><script>alert(1)</script></body></html>",
        "drawing.svg": b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'><script/></svg>",
        "feed.xml": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
        "letter.eml": b"From: a@example.org\r\nContent-Type: text/html\r\n\r\n<html><p>words</p></html>\r\n",
        "App.tsx": b"export const App = () => <html><body>words</body></html>;\n",
    }


def samsung_trailer() -> bytes:
    """What Samsung's camera appends: blocks with a name, a table of them, and its length before `SEFT`."""
    name, value = b"Image_UTC_Data", b"1480000000000"
    block = struct.pack("<HHI", 0, 0x0A01, len(name)) + name + value
    table = b"SEFH" + struct.pack("<II", 106, 1) + struct.pack("<HHII", 0, 0x0A01, len(block), len(block))
    return block + table + struct.pack("<I", len(table)) + b"SEFT"


_DOCUMENTS_PROGRAM = """
import sys
from pathlib import Path
import docx, openpyxl, pandas, pptx, xlsxwriter
from openpyxl.chart import BarChart, Reference
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches
from reportlab.pdfgen import canvas
import matplotlib
matplotlib.use("agg")
from matplotlib import pyplot

folder = Path(sys.argv[1])
show = pptx.Presentation()
slide = show.slides.add_slide(show.slide_layouts[5])
show.save(folder / "plain.pptx")
data = CategoryChartData()
data.categories = ["a", "b"]
data.add_series("sums", (1, 2))
inch = Inches(1)
slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, inch, inch, inch, inch, data)
show.save(folder / "chart.pptx")
letter = docx.Document()
letter.add_heading("Title")
letter.add_table(2, 2)
letter.save(folder / "letter.docx")
book = openpyxl.Workbook()
book.active.append([1, 2])
chart = BarChart()
chart.add_data(Reference(book.active, 1, 1, 2, 1))
book.active.add_chart(chart)
book.active["A5"].hyperlink = "https://example.org/"
book.active["A6"].hyperlink = "other.xlsx"
book.save(folder / "openpyxl.xlsx")
streamed = openpyxl.Workbook(write_only=True)
streamed.create_sheet().append([1, 2])
streamed.save(folder / "streamed.xlsx")
for name, options in (("xlsxwriter", {}), ("zip64", {"use_zip64": True}), ("constant", {"constant_memory": True})):
    written = xlsxwriter.Workbook(folder / f"{name}.xlsx", options)
    written.add_worksheet().write(0, 0, 1)
    written.close()
pandas.DataFrame({"a": [1]}).to_excel(folder / "pandas.xlsx")
page = canvas.Canvas(str(folder / "reportlab.pdf"))
page.drawString(9, 9, "words")
page.save()
pyplot.plot([1, 2])
for kind in ("pdf", "svg", "png", "jpg", "webp"):
    pyplot.savefig(folder / f"matplotlib.{kind}")
"""


def _write_documents(folder: Path) -> dict[str, bytes]:
    """By the libraries that programs of the agent have, each in its own way."""
    subprocess.run([SANDBOX_PYTHON, "-I", "-c", _DOCUMENTS_PROGRAM, folder], check=True, timeout=300)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
