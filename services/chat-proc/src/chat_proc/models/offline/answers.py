"""Renders findings in plain language: figures of a table, output of a program, and the model's capabilities."""

from collections.abc import Sequence
from importlib.resources import files

from chat_proc.models.offline.reading import Attachment
from chat_proc.models.offline.results import ColumnProfile, Figures, GroupRow, TableResult

FOOTNOTE = "_Answered by the offline model: rules, no language model._"
LABELS = {"total": "total", "mean": "average", "min": "lowest", "max": "highest", "median": "median"}
_MAX_OUTPUT_CHARS = 3_000
_MAX_ERROR_CHARS = 800
_MAX_MEASURES = 3
_ENDED_WELL, _PRINTED = "The program ended well", "--- printed ---\n"
"""The parts of a run's report: how it ended, notes, and the program's output after this line."""


def render_table_answer(result: TableResult, outputs: Sequence[str]) -> str:
    """The answer to a question about a table. `outputs` are the files that were written."""
    if result.error is not None:
        return f"I could not analyse the file. {result.error}"
    lines = [_render_ranking(result), _render_source(result)]
    if result.profile:
        lines += _render_profile(result.profile, result)
    if not result.head or result.figures:
        lines += [_render_column(name, figures, result) for name, figures in result.totals.items()]
    if "count" in result.figures or not result.totals:
        lines.append(f"- number of rows: {format_number(result.used_rows)}")
    if result.correlation is not None:
        first, second = list(result.totals)[:2]
        lines.append(f"- correlation of {first} and {second}: {result.correlation:.2f} ({_judge(result.correlation)})")
    if result.head:
        lines += ["", f"The first {len(result.head)} rows:", "", *_render_rows(result.columns[:8], result.head), ""]
    if result.group is not None:
        lines += _render_groups(result)
    if outputs:
        lines.append("Files: " + ", ".join(f"`{name}`" for name in outputs) + ".")
    return "\n".join(line for at, line in enumerate(lines) if line or at > 1)


def render_failure(what: str, report: str) -> str:
    """A sentence and the end of the tool's report."""
    tail = report.strip()[-_MAX_ERROR_CHARS:]
    return f"{what}\n\n```\n{tail}\n```" if tail else what


def render_program_output(report: str, *, ok: bool) -> str:
    """The output of the user's program, and the notes from the tool's `report`."""
    if not ok:
        return render_failure("Your program ran into an error:", report)
    told, _, printed = report.partition(_PRINTED)
    shown = printed.strip("\n")
    if len(shown) > _MAX_OUTPUT_CHARS:
        shown = shown[:_MAX_OUTPUT_CHARS] + "\n… (cut)"
    said = f"Your program ran. It printed:\n\n```\n{shown}\n```" if shown else "Your program ran and printed nothing."
    notes = "\n".join(line for line in told.strip().splitlines() if not line.startswith(_ENDED_WELL))
    return f"{said}\n\n{notes[:_MAX_ERROR_CHARS]}" if notes else said


def render_capabilities() -> str:
    """What the offline model can do, and how to attach a real one."""
    folder = files("chat_proc.models.offline").joinpath("templates")
    return folder.joinpath("capabilities.md").read_text(encoding="utf-8").strip()


def suggest_questions(result: TableResult) -> tuple[str, ...]:
    """Questions about the same table that the rules can answer, at most three."""
    measures, grouped = list(result.totals), [name for name, _ in result.by]
    ranks = bool(result.measures) and len(result.groups) > 1 and not result.ranking
    what = measures[0] if measures else "the number of rows"
    asks = [f"Show {what} by {name}" for name in result.labels if name not in grouped][:1]
    asks += [f"Show {what} per month" for name in result.dates if name not in grouped][:1]
    averages = [f"What is the average {name}?" for name in measures[:1] if "mean" not in result.figures]
    return (*["Which was best?"] * ranks, *asks, *averages)[:3]


def describe_preview(table: Attachment, columns: Sequence[str]) -> str:
    """Describes a table without running a program."""
    known = f" Its first line names the columns {', '.join(columns)}." if columns else ""
    return f"I can see {table.name}.{known}"


def format_number(value: float | None) -> str:
    """With thousands separators and at most two decimals, four for small numbers; a dash for no number."""
    if value is None:
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}".rstrip("0").rstrip(".")


def choose_figure(figures: Sequence[str]) -> str:
    """The figure by which groups are compared: the first one requested, otherwise the total."""
    return next((figure for figure in figures if figure in LABELS), "total")


def render_filters(result: TableResult) -> str:
    """`region is South or West; date is not March`."""
    parts: list[str] = []
    for column, values in result.filters.items():
        told = [value for value in values if value]
        if told[:1] and told[0].startswith("not "):
            parts.append(f"{column} is not {' or '.join(value[4:] for value in told)}")
        elif "" in values:
            parts.append(f"{column} is in {' '.join(told)}")
        else:
            parts.append(f"{column} is {' or '.join(told)}")
    return "; ".join(parts)


def _render_source(result: TableResult) -> str:
    if result.profile:
        count = result.column_count or len(result.columns)
        columns = f"{count} column{'s' if count != 1 else ''}"
        rows = f"{format_number(result.rows)} row{'s' if result.rows != 1 else ''}"
        return f"**{result.file}** has {rows} and {columns}."
    rows = f"{format_number(result.rows)} row{'s' if result.rows != 1 else ''}"
    if result.filters:
        return f"From **{result.file}**, {format_number(result.used_rows)} of {rows}, where {render_filters(result)}:"
    return f"From **{result.file}**, {rows}:"


def _render_profile(profile: Sequence[ColumnProfile], result: TableResult) -> list[str]:
    rows = [
        (column.name, column.kind, column.told, format_number(column.distinct), format_number(column.missing))
        for column in profile
    ]
    rest = (result.column_count or len(result.columns)) - len(profile)
    more = [f"{rest} more columns are not shown.", ""] if rest > 0 else []
    return ["", *_render_rows(("column", "kind", "values", "different", "missing"), rows), "", *more]


def _render_column(name: str, figures: Figures, result: TableResult) -> str:
    wanted = [figure for figure in result.figures if figure in LABELS] or ["total", "mean", "min", "max"]
    peaks = result.peaks.get(name, {})
    values = ", ".join(
        f"{LABELS[figure]} {format_number(figures.figure(figure))}"
        + (f" ({peaks[figure]})" if peaks.get(figure) and not result.by else "")
        for figure in wanted
    )
    missing = f", {format_number(figures.missing)} missing" if figures.missing else ""
    return f"- **{name}**: {values} ({format_number(figures.count)} value{'s' if figures.count != 1 else ''}{missing})"


def _render_groups(result: TableResult) -> list[str]:
    measures = result.measures[:_MAX_MEASURES]
    have = {figure for row in result.groups for each in row.values.values() for figure in each.model_fields_set}
    wanted = [figure for figure in result.figures if figure in LABELS and figure in have] or ["total", "mean"]
    heads = [f"{LABELS[figure]} {name}" for name in measures for figure in wanted]
    rows = [
        [
            row.name,
            format_number(row.rows),
            *(format_number(_figure(row, name, figure)) for name in measures for figure in wanted),
        ]
        for row in result.groups
    ]
    lines = ["", f"By {result.group}:", "", *_render_rows((str(result.group), "rows", *heads), rows), ""]
    if result.group_count > len(result.groups):
        lines.append(f"Shown are {len(result.groups)} of {format_number(result.group_count)}; the table file has all.")
    return lines if result.ranking else [*lines, *_render_extremes(result)]


def _render_ranking(result: TableResult) -> str:
    """The direct answer to "which was best?"."""
    if result.ranking is None or not result.groups:
        return ""
    first, figure = result.groups[0], choose_figure(result.figures)
    word = "highest" if result.ranking[0] == "high" else "lowest"
    if not result.measures:
        many = "most" if word == "highest" else "fewest"
        return f"**{first.name}** has the {many} rows: {format_number(first.rows)}.\n"
    measure = result.measures[0]
    value = format_number(_figure(first, measure, figure))
    return f"**{first.name}** has the {word} {_name_figure(figure)}{measure}: {value}.\n"


def _render_extremes(result: TableResult) -> list[str]:
    if not result.measures:
        return []
    measure, figure = result.measures[0], choose_figure(result.figures)
    values = [(_figure(row, measure, figure), row.name) for row in result.groups]
    ranked = [(value, name) for value, name in values if value is not None]
    if len(ranked) < 2 or result.group_count > len(result.groups):
        return []
    (high, best), (low, worst) = max(ranked), min(ranked)
    kind = f"{_name_figure(figure)}{measure} by {result.group}"
    return [f"Highest {kind}: {best} with {format_number(high)}. Lowest: {worst} with {format_number(low)}."]


def _name_figure(figure: str) -> str:
    return "" if figure in ("min", "max") else f"{LABELS[figure]} "


def _figure(row: GroupRow, measure: str, figure: str) -> float | None:
    figures = row.values.get(measure)
    return None if figures is None else figures.figure(figure)


def _judge(correlation: float) -> str:
    strength = "strong" if abs(correlation) >= 0.7 else "moderate" if abs(correlation) >= 0.4 else "weak"
    return "none" if abs(correlation) < 0.1 else f"{strength}, {'positive' if correlation > 0 else 'negative'}"


def _render_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_row(heads), _row(["---"] * len(heads)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
