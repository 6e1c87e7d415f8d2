"""Slides with one layout. Runs in the sandbox, with python-pptx."""

from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.dml.color import RGBColor
from pptx.enum.chart import XL_CHART_TYPE, XL_LEGEND_POSITION
from pptx.util import Inches, Pt

KINDS = {
    "column": XL_CHART_TYPE.COLUMN_CLUSTERED,
    "bar": XL_CHART_TYPE.BAR_CLUSTERED,
    "line": XL_CHART_TYPE.LINE_MARKERS,
    "pie": XL_CHART_TYPE.PIE,
}
INK = RGBColor(0x1F, 0x29, 0x33)
WIDTH, HEIGHT = Inches(13.333), Inches(7.5)
MARGIN = Inches(0.7)
TOP = Inches(1.7)
MAX_TITLE_CHARS, MAX_BULLETS, MAX_BULLET_CHARS = 80, 6, 110
MAX_ROWS, MAX_COLUMNS, MAX_CELL_CHARS = 12, 8, 60


class Deck:
    """A presentation of 16:9. Every method adds one slide; they raise ValueError for what does not fit on it."""

    def __init__(self, *, accent="0B62A4", template=None):
        self.presentation = Presentation(template)
        if template is None:
            self.presentation.slide_width, self.presentation.slide_height = WIDTH, HEIGHT
        self.accent = RGBColor.from_string(accent)
        layouts = self.presentation.slide_layouts
        self.layout = min(layouts, key=lambda layout: len(layout.placeholders))
        self.width = self.presentation.slide_width - 2 * MARGIN
        self.body = self.presentation.slide_height - TOP - MARGIN

    def add_title(self, title, subtitle="", *, notes=""):
        """The first slide, or one that begins a part."""
        slide = self._add("", notes)
        check("title", title, MAX_TITLE_CHARS)
        self._write(slide, title, Inches(2.4), 44, bold=True, color=self.accent)
        if subtitle:
            check("subtitle", subtitle, 2 * MAX_TITLE_CHARS)
            self._write(slide, subtitle, Inches(4.3), 22)

    def add_bullets(self, title, bullets, *, notes=""):
        """A slide with a list."""
        if not 0 < len(bullets) <= MAX_BULLETS:
            raise ValueError(f"A slide has 1 to {MAX_BULLETS} bullets, not {len(bullets)}.")
        for bullet in bullets:
            check("bullet", bullet, MAX_BULLET_CHARS)
        slide = self._add(title, notes)
        frame = slide.shapes.add_textbox(MARGIN, TOP, self.width, self.body).text_frame
        frame.word_wrap = True
        for number, bullet in enumerate(bullets):
            paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
            paragraph.space_after = Pt(14)
            style(paragraph, f"•  {bullet}", 24, INK)

    def add_table(self, title, header, rows, *, notes=""):
        """A slide with a table; numbers come as the texts to show."""
        if not 0 < len(rows) <= MAX_ROWS or not 0 < len(header) <= MAX_COLUMNS:
            raise ValueError(f"A table has 1 to {MAX_ROWS} rows and 1 to {MAX_COLUMNS} columns.")
        if any(len(row) != len(header) for row in rows):
            raise ValueError(f"Every row must have {len(header)} cells, as the header has.")
        slide = self._add(title, notes)
        height = Inches(0.45) * (len(rows) + 1)
        table = slide.shapes.add_table(len(rows) + 1, len(header), MARGIN, TOP, self.width, height).table
        for number, row in enumerate([header, *rows]):
            for column, value in enumerate(row):
                check("cell", str(value), MAX_CELL_CHARS)
                cell = table.cell(number, column)
                style(cell.text_frame.paragraphs[0], str(value), 14, None if number == 0 else INK, bold=number == 0)
                if number == 0:
                    cell.fill.solid()
                    cell.fill.fore_color.rgb = self.accent

    def add_chart(self, title, categories, series, *, kind="column", notes=""):
        """A slide with a native chart; `series` are lists of numbers by name."""
        if kind not in KINDS:
            raise ValueError(f"There is no chart {kind!r}: use {', '.join(KINDS)}.")
        if not series or any(len(values) != len(categories) for values in series.values()):
            raise ValueError(f"Every series must have {len(categories)} values, one for each category.")
        data = CategoryChartData()
        data.categories = categories
        for name, values in series.items():
            data.add_series(name, values)
        slide = self._add(title, notes)
        chart = slide.shapes.add_chart(KINDS[kind], MARGIN, TOP, self.width, self.body, data).chart
        chart.has_legend = len(series) > 1 or kind == "pie"
        if chart.has_legend:
            chart.legend.position, chart.legend.include_in_layout = XL_LEGEND_POSITION.BOTTOM, False
        if kind != "pie":
            first = chart.plots[0].series[0].format
            fill = first.line if kind == "line" else first.fill
            if kind != "line":
                fill.solid()
            (fill.color if kind == "line" else fill.fore_color).rgb = self.accent

    def add_image(self, title, path, caption="", *, notes=""):
        """A slide with an image, as large as it fits."""
        slide = self._add(title, notes)
        picture = slide.shapes.add_picture(path, MARGIN, TOP)
        room = self.body - (Inches(0.5) if caption else 0)
        scale = min(self.width / picture.width, room / picture.height)
        picture.width, picture.height = int(picture.width * scale), int(picture.height * scale)
        picture.left = int(MARGIN + (self.width - picture.width) / 2)
        if caption:
            check("caption", caption, 2 * MAX_TITLE_CHARS)
            self._write(slide, caption, TOP + room + Inches(0.1), 14)

    def save(self, path):
        if not len(self.presentation.slides):
            raise ValueError("There are no slides.")
        self.presentation.save(path)

    def _add(self, title, notes):
        slide = self.presentation.slides.add_slide(self.layout)
        for placeholder in list(slide.placeholders):
            placeholder.element.getparent().remove(placeholder.element)
        if title:
            check("title", title, MAX_TITLE_CHARS)
            self._write(slide, title, Inches(0.6), 32, bold=True, color=self.accent)
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
        return slide

    def _write(self, slide, text, top, size, *, bold=False, color=INK):
        frame = slide.shapes.add_textbox(MARGIN, int(top), self.width, Inches(1)).text_frame
        frame.word_wrap = True
        style(frame.paragraphs[0], text, size, color, bold=bold)


def style(paragraph, text, size, color, *, bold=False):
    run = paragraph.add_run()
    run.text = text
    run.font.size, run.font.bold = Pt(size), bold
    if color is not None:
        run.font.color.rgb = color


def check(what, text, limit):
    if len(text) > limit:
        raise ValueError(f"The {what} {text[:40]!r}... has {len(text)} characters; at most {limit} fit.")
