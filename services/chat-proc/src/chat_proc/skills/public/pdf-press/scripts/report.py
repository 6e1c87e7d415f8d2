"""Turns a subset of Markdown into a PDF. Runs in the sandbox, with reportlab and the fonts of matplotlib."""

import os
import re
from importlib.util import find_spec
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.pagesizes import landscape as turned
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Image, ListFlowable, PageBreak, Paragraph, Preformatted, SimpleDocTemplate, Spacer, Table

INK, RULE, SHADE = colors.HexColor("#1f2933"), colors.HexColor("#c5ccd3"), colors.HexColor("#eef1f4")
MARGIN = 20 * mm


def register_fonts():
    """Register DejaVu Sans as `Body`, with its bold and slanted styles, and DejaVu Sans Mono as `Mono`."""
    if "Body" in pdfmetrics.getRegisteredFontNames():
        return
    folder = os.path.join(os.path.dirname(find_spec("matplotlib").origin), "mpl-data", "fonts", "ttf")
    names = {"Body": "", "Bold": "-Bold", "Slanted": "-Oblique", "Both": "-BoldOblique", "Mono": "Mono"}
    for name, file in names.items():
        pdfmetrics.registerFont(TTFont(name, os.path.join(folder, f"DejaVuSans{file}.ttf")))
    pdfmetrics.registerFontFamily("Body", normal="Body", bold="Bold", italic="Slanted", boldItalic="Both")


def build_pdf(path, markdown, *, title="", author="", page="A4", landscape=False, images="."):
    """Write the PDF. Raises ValueError for a character that the fonts lack, FileNotFoundError for a missing image."""
    register_fonts()
    check_characters(markdown + title)
    size = {"a4": A4, "letter": LETTER}[page.lower()]
    size = turned(size) if landscape else size
    document = SimpleDocTemplate(
        path,
        pagesize=size,
        title=title,
        author=author,
        leftMargin=MARGIN,
        rightMargin=MARGIN,
        topMargin=MARGIN,
        bottomMargin=MARGIN,
    )
    story = list(build_story(markdown, document.width, document.height, images))
    if not story:
        raise ValueError("The text is empty.")
    document.build(story, onFirstPage=draw_number, onLaterPages=draw_number)


def check_characters(text):
    known = pdfmetrics.getFont("Body").face.charToGlyph
    missing = next((char for char in text if char not in "\n\r\t" and ord(char) not in known), None)
    if missing is not None:
        raise ValueError(f"The fonts lack the character {missing!r} (U+{ord(missing):04X}).")


def draw_number(canvas, document):
    canvas.setFont("Body", 8)
    canvas.setFillColor(INK)
    canvas.drawRightString(document.pagesize[0] - MARGIN, MARGIN / 2, str(canvas.getPageNumber()))


def build_story(markdown, width, height, images):
    """The parts of the document, in order."""
    styles = build_styles()
    lines = markdown.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].startswith("```")), len(lines))
            yield Preformatted("\n".join(lines[at + 1 : end]), styles["code"], maxLineLength=int(width / 5.2))
            at = end + 1
        elif line.strip() == "<!-- page -->":
            yield PageBreak()
            at += 1
        elif found := re.match(r"(#{1,3}) +(.*)", line):
            yield Paragraph(format_inline(found[2]), styles[f"h{len(found[1])}"])
            at += 1
        elif found := re.fullmatch(r"!\[(.*?)\]\((.+?)\)", line.strip()):
            yield fit_image(os.path.join(images, found[2]), width, height * 0.7)
            yield Paragraph(format_inline(found[1]), styles["caption"])
            at += 1
        elif line.lstrip().startswith("|"):
            end = next((n for n in range(at, len(lines)) if not lines[n].lstrip().startswith("|")), len(lines))
            yield build_table(lines[at:end], width, styles)
            yield Spacer(1, 3 * mm)
            at = end
        elif item := match_item(line):
            items, kind = [], item[0]
            while at < len(lines) and (item := match_item(lines[at])) and item[0] == kind:
                items.append(Paragraph(format_inline(item[1]), styles["text"]))
                at += 1
            yield ListFlowable(items, bulletType=kind, bulletFontName="Body", start="•" if kind == "bullet" else 1)
        else:
            end = at + 1
            while end < len(lines) and lines[end].strip() and not starts_block(lines[end]):
                end += 1
            yield Paragraph(format_inline(" ".join(part.strip() for part in lines[at:end])), styles["text"])
            at = end


def match_item(line):
    """The kind of a list and the text of its item; None for other lines."""
    if found := re.match(r" {0,3}[-*] +(.*)", line):
        return "bullet", found[1]
    if found := re.match(r" {0,3}\d{1,4}[.)] +(.*)", line):
        return "1", found[1]
    return None


def starts_block(line):
    return bool(match_item(line)) or line.lstrip().startswith(("|", "#", "```", "![", "<!--"))


def format_inline(text):
    """The markup of reportlab for a line of Markdown."""
    parts = re.split(r"(`[^`]+`)", text)
    for number, part in enumerate(parts):
        safe = escape(part)
        if number % 2:
            parts[number] = f'<font name="Mono" backColor="#eef1f4">{safe[1:-1]}</font>'
            continue
        safe = re.sub(r"\[([^\]]+)\]\((https?://[^\s)\"]+)\)", r'<a href="\2" color="#0b62a4">\1</a>', safe)
        safe = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", safe)
        parts[number] = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<i>\1</i>", safe)
    return "".join(parts)


def build_table(lines, width, styles):
    """Columns are as wide as their longest cell needs, within the page."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    marks = rows.pop(1) if len(rows) > 1 and all(re.fullmatch(r":?-+:?", cell) for cell in rows[1]) else []
    columns = max(map(len, rows))
    right = {number for number, mark in enumerate(marks) if mark.endswith(":")}
    rows = [row + [""] * (columns - len(row)) for row in rows]
    longest = [min(40, max(len(row[number]) for row in rows) + 3) for number in range(columns)]
    widths = [width * chars / sum(longest) for chars in longest]
    cells = [
        [Paragraph(format_inline(cell), styles["right" if n in right else "cell"]) for n, cell in enumerate(row)]
        for row in rows
    ]
    look = [
        ("VALIGN", (0, 0), (-1, -1), "TOP"), ("LINEBELOW", (0, 0), (-1, -1), 0.4, RULE),
        ("BACKGROUND", (0, 0), (-1, 0), SHADE),
    ]  # fmt: skip
    return Table(cells, colWidths=widths, repeatRows=1, style=look)


def fit_image(path, width, height):
    image = Image(path)
    scale = min(1, width / image.imageWidth, height / image.imageHeight)
    image.drawWidth, image.drawHeight = image.imageWidth * scale, image.imageHeight * scale
    return image


def build_styles():
    text = ParagraphStyle("text", fontName="Body", fontSize=10, leading=14, textColor=INK, spaceAfter=6)
    cell = ParagraphStyle("cell", parent=text, fontSize=9, leading=12, spaceAfter=0)
    heading = ParagraphStyle("heading", parent=text, fontName="Bold", keepWithNext=1)
    return {
        "text": text,
        "cell": cell,
        "right": ParagraphStyle("right", parent=cell, alignment=TA_RIGHT),
        "caption": ParagraphStyle("caption", parent=text, fontSize=8, leading=11, spaceAfter=8),
        "code": ParagraphStyle("code", fontName="Mono", fontSize=8, leading=11, backColor=SHADE, spaceAfter=8),
        "h1": ParagraphStyle("h1", parent=heading, fontSize=18, leading=23, spaceAfter=10),
        "h2": ParagraphStyle("h2", parent=heading, fontSize=14, leading=18, spaceBefore=8),
        "h3": ParagraphStyle("h3", parent=heading, fontSize=11, leading=15, spaceBefore=4),
    }
