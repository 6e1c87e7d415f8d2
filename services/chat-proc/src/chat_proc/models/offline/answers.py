"""Puts what was found into plain language: figures of a table, output of a program, and what can be done at all."""

import re
from collections.abc import Sequence
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, ValidationError

from chat_proc.models.offline.reading import Attachment

FOOTNOTE = "_Answered by the offline model: rules, no language model._"
_RESULT = re.compile(r"^RESULT (\{.*\})\s*$", re.MULTILINE)
_LABELS = {"total": "total", "mean": "mean", "min": "lowest", "max": "highest", "median": "median"}
_MAX_OUTPUT_CHARS = 3_000
_MAX_ERROR_CHARS = 800


class Figures(BaseModel):
    """Figures of one column; None where there are no numbers."""

    model_config = ConfigDict(frozen=True)

    total: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    median: float | None = None
    count: int = 0
    missing: int = 0


class GroupRow(BaseModel):
    """Figures of one group, by column."""

    model_config = ConfigDict(frozen=True)

    name: str
    rows: int
    values: dict[str, Figures]


class TableResult(BaseModel):
    """What the analysis program prints."""

    model_config = ConfigDict(frozen=True)

    error: str | None = None
    file: str = ""
    rows: int = 0
    used_rows: int = 0
    columns: tuple[str, ...] = ()
    filters: dict[str, tuple[str, ...]] = {}
    figures: tuple[str, ...] = ()
    totals: dict[str, Figures] = {}
    group: str | None = None
    group_count: int = 0
    groups: tuple[GroupRow, ...] = ()


def try_read_result(report: str) -> TableResult | None:
    """The result in a tool's report, or None when it is not there or was cut."""
    found = _RESULT.findall(report)
    try:
        return TableResult.model_validate_json(found[-1]) if found else None
    except ValidationError:
        return None


def render_table_answer(result: TableResult, outputs: Sequence[str]) -> str:
    """The answer to a question about a table. `outputs` are the files that were written."""
    if result.error is not None:
        return f"I could not analyse the file. {result.error}"
    lines = [f"**{result.file}** has {format_number(result.rows)} rows and the columns {', '.join(result.columns)}."]
    if result.filters:
        names = "; ".join(f"{column} is {' or '.join(values)}" for column, values in result.filters.items())
        lines.append(f"Only the {format_number(result.used_rows)} rows where {names} count below.")
    lines += [_render_column(name, figures, result.figures) for name, figures in result.totals.items()]
    if "count" in result.figures or not result.totals:
        lines.append(f"- number of rows: {format_number(result.used_rows)}")
    if result.group is not None:
        lines += _render_groups(result)
    if outputs:
        lines.append("Files: " + ", ".join(f"`{name}`" for name in outputs) + ".")
    return "\n".join(lines)


def render_failure(what: str, report: str) -> str:
    """An honest sentence and the end of what the tool said."""
    tail = report.strip()[-_MAX_ERROR_CHARS:]
    return f"{what}\n\n```\n{tail}\n```" if tail else what


def render_program_output(report: str, *, ok: bool) -> str:
    """What the user's program printed."""
    shown = report.strip()
    if len(shown) > _MAX_OUTPUT_CHARS:
        shown = shown[:_MAX_OUTPUT_CHARS] + "\n… (cut)"
    if not ok:
        return render_failure("Your program ran into an error:", report)
    return f"Your program ran. It printed:\n\n```\n{shown}\n```" if shown else "Your program ran and printed nothing."


def render_capabilities() -> str:
    """What the offline model can do, and how to attach a real one."""
    return files("chat_proc.models.offline").joinpath("capabilities.md").read_text(encoding="utf-8").strip()


def suggest_questions(result: TableResult) -> tuple[str, ...]:
    """Questions about the same table that the rules can answer, at most three."""
    measures = list(result.totals)
    others = [name for name in result.columns if name not in measures and not (result.group or "").startswith(name)]
    asks = [f"Show {measures[0]} by {name}" for name in others[:2]] if measures else []
    return (*asks, *(f"What is the average {name}?" for name in measures[:1]))[:3]


def describe_preview(table: Attachment, columns: Sequence[str]) -> str:
    """What can be said about a table without running anything."""
    known = f" Its first line names the columns {', '.join(columns)}." if columns else ""
    return f"I can see {table.name}.{known}"


def format_number(value: float | None) -> str:
    """With thousands separators and at most two decimals, four for small numbers; a dash for no number."""
    if value is None:
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}".rstrip("0")


def _render_column(name: str, figures: Figures, asked: Sequence[str]) -> str:
    wanted = [figure for figure in asked if figure in _LABELS] or ["total", "mean", "min", "max"]
    values = ", ".join(f"{_LABELS[figure]} {format_number(getattr(figures, figure))}" for figure in wanted)
    missing = f", {format_number(figures.missing)} missing" if figures.missing else ""
    return f"- **{name}**: {values} ({format_number(figures.count)} values{missing})"


def _render_groups(result: TableResult) -> list[str]:
    measures = [name for name in result.totals if any(name in row.values for row in result.groups)][:3]
    wanted = [figure for figure in result.figures if figure in ("total", "mean")] or ["total", "mean"]
    heads = [f"{_LABELS[figure]} {name}" for name in measures for figure in wanted]
    lines = ["", f"By {result.group}:", "", _row([str(result.group), "rows", *heads]), _row(["---"] * (2 + len(heads)))]
    for row in result.groups:
        cells = [format_number(_figure(row, name, figure)) for name in measures for figure in wanted]
        lines.append(_row([row.name, format_number(row.rows), *cells]))
    lines.append("")
    if result.group_count > len(result.groups):
        lines.append(f"Shown are {len(result.groups)} of {format_number(result.group_count)}; the table file has all.")
    return lines + (_render_extremes(result, measures[0], wanted[0]) if measures else [])


def _render_extremes(result: TableResult, measure: str, figure: str) -> list[str]:
    values = [(_figure(row, measure, figure), row.name) for row in result.groups]
    ranked = [(value, name) for value, name in values if value is not None]
    if len(ranked) < 2 or result.group_count > len(result.groups):
        return []
    (high, best), (low, worst) = max(ranked), min(ranked)
    kind = f"{_LABELS[figure]} {measure} by {result.group}"
    return [f"Highest {kind}: {best} with {format_number(high)}. Lowest: {worst} with {format_number(low)}."]


def _figure(row: GroupRow, measure: str, figure: str) -> float | None:
    figures = row.values.get(measure)
    return None if figures is None else figures.total if figure == "total" else figures.mean


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
