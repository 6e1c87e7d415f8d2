"""Analyses a CSV file: the source of the program that the demo runs in the sandbox, with a last line that calls `main`.

Of a question it understands the names of columns, and words for figures, periods and charts. What a question leaves
out is taken from the questions before it, so that "And the average?" is enough.
"""

import csv
import importlib
import io
import os
import re
import sys
from dataclasses import dataclass, replace
from datetime import date, datetime
from math import isnan
from statistics import fmean
from typing import Any

FIGURES = {
    "total": ("total", "sum"),
    "average": ("average", "mean"),
    "lowest": ("lowest", "minimum", "smallest"),
    "highest": ("highest", "maximum", "largest"),
}
PERIODS = {"%Y-%m-%d": ("day", "daily"), "%Y-%m": ("month", "monthly"), "%Y": ("year", "yearly")}
FORMS = {"pie": ("pie",), "overview": ("describe", "overview", "column", "summarize", "what is in")}
DATE_FORMATS = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
MISSING = frozenset({"", "-", "n/a", "na", "nan", "null", "none"})
MAX_SHOWN, MAX_CELL_CHARS = 20, 40


@dataclass(frozen=True)
class Table:
    """A file's columns by name. Columns of numbers and of dates are also there as such, None where a cell has none."""

    name: str
    texts: dict[str, list[str]]
    numbers: dict[str, list[float | None]]
    dates: dict[str, list[date | None]]
    rows: int


@dataclass(frozen=True)
class Question:
    """What is asked for. The values of `group` become rows; `period` is the format of its dates. `top` is the number of
    groups shown, 0 for all. `form` is one of FORMS."""

    group: str = ""
    period: str = ""
    measure: str = ""
    figure: str = ""
    top: int = 0
    form: str = ""


@dataclass(frozen=True)
class Group:
    """The rows with one value of the column that is grouped by, and the measured numbers in them."""

    name: str
    rows: int
    values: list[float]

    def figure(self, name: str) -> float:
        """One of FIGURES, or the number of rows; not a number if there are no values."""
        if name not in FIGURES:
            return float(self.rows)
        compute = {"total": sum, "average": fmean, "lowest": min, "highest": max}[name]
        return float(compute(self.values)) if self.values else float("nan")


def main(source: str, path: str, questions: list[str]) -> None:
    """Print the answer to the last question about a file, and write a chart and its figures to `<path>.png`, `.csv`."""
    table = read_table(source)
    question = read_questions(questions, table)
    groups = build_groups(table, question)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_groups(path + ".csv", groups, question)
    draw_chart(path + ".png", groups, question)
    sys.stdout.write("\n".join(describe(table, groups, question)) + "\n")


def read_table(path: str) -> Table:
    """The file's columns. Ends the program if the file has no rows."""
    with open(path, "rb") as file:
        text = decode(file.read()).replace("\0", "")
    csv.field_size_limit(2**31 - 1)
    head = text.split("\n", 1)[0]
    lines = io.StringIO(text, newline=None)
    rows = [row for row in csv.reader(lines, delimiter=max(",;\t|", key=head.count)) if any(row)]
    if len(rows) < 2:
        raise SystemExit("The file has no rows.")
    texts: dict[str, list[str]] = {}
    for at, cell in enumerate(rows[0]):
        name = " ".join(cell.split()) or f"column {at + 1}"
        name = name if name not in texts else f"{name} ({at + 1})"
        texts[name] = [" ".join(row[at].split()) if at < len(row) else "" for row in rows[1:]]
    numbers = {name: found for name, cells in texts.items() if is_recognized(found := read_numbers(cells), cells)}
    dates = {name: found for name, cells in texts.items() if is_recognized(found := read_dates(cells), cells)}
    return Table(os.path.basename(path), texts, numbers, dates, len(rows) - 1)


def decode(raw: bytes) -> str:
    """The text of a file in UTF-8, in UTF-16 with a byte order mark, or else in Windows-1252."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def read_numbers(cells: list[str]) -> list[float | None]:
    """The cells as numbers, such as `$1,200.50`, `12 %` and `(50)`; `1.200,50` if some cell can only be that."""
    plain = [re.sub(r"^\((.+)\)$", r"-\1", re.sub(r"[\s$€£¥%]", "", cell)) for cell in cells]
    if any(re.fullmatch(r"-?[\d.]+,\d{1,2}", cell) for cell in plain):
        plain = [cell.replace(".", "").replace(",", ".") for cell in plain]
    plain = [cell.replace(",", "") for cell in plain]
    return [float(cell) if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)", cell, re.ASCII) else None for cell in plain]


def read_dates(cells: list[str]) -> list[date | None]:
    """The cells as dates, with or without a time, all in the one of DATE_FORMATS that fits the most."""
    return max(
        ([try_read_date(cell, form) for cell in cells] for form in DATE_FORMATS), key=lambda found: -found.count(None)
    )


def try_read_date(cell: str, form: str) -> date | None:
    """The date at the beginning of a cell."""
    try:
        return datetime.strptime(re.split(r"[T ]", cell, maxsplit=1)[0], form).date()
    except ValueError:
        return None


def is_recognized(found: list[Any], cells: list[str]) -> bool:
    """Whether four fifths of the cells that have a value were read."""
    return 0 < len(found) - found.count(None) >= 0.8 * sum(cell.lower() not in MISSING for cell in cells)


def split_words(text: str) -> str:
    """Lower-case words with single blanks, without plural endings, a blank at both ends."""
    words = re.findall(r"\w+", text.replace("_", " ").replace("what's", "what is").lower())
    return " " + " ".join(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words) + " "


def find_word(asked: str, choices: dict[str, tuple[str, ...]]) -> str:
    """The first choice with a word that is in the question; "" if there is none."""
    return next((name for name, words in choices.items() if any(f" {word} " in asked for word in words)), "")


def read_questions(texts: list[str], table: Table) -> Question:
    """The last question, filled in from those before it and at last from the table itself."""
    whole = Question()
    for text in texts:
        read = read_question(text, table)
        group, period = (read.group, read.period) if read.group else (whole.group, whole.period)
        measure, figure = read.measure or whole.measure, read.figure or whole.figure
        whole = replace(read, group=group, period=period, measure=measure, figure=figure)
    if whole == Question():
        whole = Question(form="overview")
    group = whole.group or choose_group(table)
    measure = whole.measure or next((name for name in reversed(table.numbers) if name != group), "")
    return replace(whole, group=group, measure=measure, figure=(whole.figure or "total") if measure else "rows")


def read_question(text: str, table: Table) -> Question:
    """What one question names."""
    asked = split_words(text)
    period = find_word(asked, PERIODS)
    named = [name for name in table.texts if split_words(name).strip() and split_words(name) in asked]
    labels = [name for name in named if name not in table.numbers and name not in table.dates]
    days = [name for name in table.dates if name in named or period]
    keys = [name for name in named if any(f" {word}{split_words(name)}" in asked for word in ("by", "per", "each"))]
    group = next(iter([*labels, *days, *keys]), "")
    measures = [name for name in named if name in table.numbers and name != group]
    top = re.search(r" top (\d{1,2}) ", asked)
    return Question(
        group=group,
        period=(period or "%Y-%m") if group in table.dates else "",
        measure=next(iter(measures), ""),
        figure=find_word(asked, FIGURES),
        top=int(top[1]) if top else 0,
        form=find_word(asked, FORMS),
    )


def choose_group(table: Table) -> str:
    """A column of text with few values, for a question that names none; "" if there is none."""
    texts = [name for name in table.texts if name not in table.numbers and name not in table.dates]
    return next((name for name in texts if 1 < len(set(table.texts[name])) <= MAX_SHOWN), "")


def build_groups(table: Table, question: Question) -> list[Group]:
    """The groups, periods in order of time, others with the largest figure first; one group if none is asked for."""
    numbers = table.numbers.get(question.measure, [None] * table.rows)
    rows: dict[str, list[float | None]] = {}
    for at, number in enumerate(numbers):
        rows.setdefault(name_group(table, question, at), []).append(number)
    groups = [Group(name, len(all_), [each for each in all_ if each is not None]) for name, all_ in rows.items()]
    return sorted(groups, key=lambda group: group.name) if question.period else rank(groups, question.figure)


def name_group(table: Table, question: Question, at: int) -> str:
    """The group of a row."""
    if not question.group:
        return "all rows"
    if question.period:
        day = table.dates[question.group][at]
        return day.strftime(question.period) if day else "(no date)"
    return table.texts[question.group][at] or "(empty)"


def rank(groups: list[Group], figure: str) -> list[Group]:
    """The groups with the highest figure first; those without numbers last."""
    return sorted(groups, key=lambda group: (isnan(group.figure(figure)), -group.figure(figure)))


def describe(table: Table, groups: list[Group], question: Question) -> list[str]:
    """The answer, line by line."""
    return describe_columns(table) if question.form == "overview" else describe_groups(table, groups, question)


def describe_columns(table: Table) -> list[str]:
    """What is in the file."""
    head = f"**{escape(table.name)}** has {table.rows:,} rows and {len(table.texts):,} columns:"
    rows: list[list[str]] = []
    for name, cells in [*table.texts.items()][:MAX_SHOWN]:
        filled = [cell for cell in cells if cell.lower() not in MISSING]
        kind, values = "text", f"{len(set(filled)):,} different, such as {', '.join(sorted(set(filled))[:3])}"
        if name in table.numbers:
            numbers = [number for number in table.numbers[name] if number is not None]
            kind, values = "number", f"{show(min(numbers))} to {show(max(numbers))}"
        elif name in table.dates:
            days = [day for day in table.dates[name] if day is not None]
            kind, values = "date", f"{min(days)} to {max(days)}"
        rows.append([name, kind, values, f"{table.rows - len(filled):,}"])
    return [head, "", *draw_rows(["column", "kind", "values", "missing"], rows)]


def describe_groups(table: Table, groups: list[Group], question: Question) -> list[str]:
    """Which group is first and last, the figures of each group, and those of all rows."""
    measure, figure, shown = question.measure, question.figure, groups[: question.top or MAX_SHOWN]
    lines: list[str] = []
    if question.group:
        ranked = [group for group in rank(groups, figure) if not isnan(group.figure(figure))] or groups
        best, worst = ranked[0], ranked[-1]
        lines.append(f"**{escape(best.name)}** has the highest {figure} {measure}: {show(best.figure(figure))}.")
        lines.append(f"**{escape(worst.name)}** has the lowest: {show(worst.figure(figure))}.")
        figures = dict.fromkeys([figure, "average", "rows"])
        rows = [[group.name, *(show(group.figure(name)) for name in figures)] for group in shown]
        lines += ["", *draw_rows([question.group, *figures], rows), ""]
        lines += [f"Showing {len(shown):,} of {len(groups):,}."] if len(shown) < len(groups) else []
    whole = Group("", table.rows, [number for group in groups for number in group.values])
    figures = [f"{name} {measure} {show(whole.figure(name))}" for name in FIGURES] if measure else ["no numbers"]
    figures += [f"{table.rows - len(whole.values):,} missing"] if measure else []
    return [*lines, f"All {table.rows:,} rows of **{escape(table.name)}**: {', '.join(figures)}."]


def write_groups(path: str, groups: list[Group], question: Question) -> None:
    """All groups with all figures, as a CSV file."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([question.group, "rows", *(f"{name} {question.measure}" for name in FIGURES)])
        writer.writerows([group.name, group.rows, *map(group.figure, FIGURES)] for group in groups)


def draw_chart(path: str, groups: list[Group], question: Question) -> None:
    """The groups as a chart: a line over time, otherwise bars; a pie if asked for and possible."""
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    shown = groups[-60:] if question.period else groups[:MAX_SHOWN]
    names = [group.name[:MAX_CELL_CHARS].replace("$", r"\$") for group in shown]
    heights = [group.figure(question.figure) for group in shown]
    page, axes = pyplot.subplots(figsize=(9, 5))
    if question.form == "pie" and min(heights) >= 0 and sum(heights) > 0:
        axes.pie(heights, labels=names, autopct="%1.0f%%", startangle=90, counterclock=False)
    elif question.period:
        axes.plot(names, heights, marker="o")
    else:
        axes.bar(names, heights)
    axes.set_title(f"{question.figure} {question.measure} by {question.group}".replace("$", r"\$"))
    axes.tick_params(axis="x", rotation=45)
    page.tight_layout()
    page.savefig(path, dpi=110)


def draw_rows(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(map(escape, row)) + " |" for row in (head, ["---"] * len(head), *rows)]


def escape(text: str) -> str:
    """The beginning of a text from the file, in which nothing is markup."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text[:MAX_CELL_CHARS])


def show(number: float) -> str:
    """With thousands separators and at most two decimals; a dash for no number."""
    return "-" if isnan(number) else f"{number:,.2f}".rstrip("0").rstrip(".")
