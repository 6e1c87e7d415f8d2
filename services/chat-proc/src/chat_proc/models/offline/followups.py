"""Handles questions that refer to the previous analysis: answers them from its result, or fills in what they omit."""

import re
from collections.abc import Iterable

from chat_proc.models.offline.answers import LABELS, choose_figure, format_number, render_filters
from chat_proc.models.offline.columns import (
    PERIOD_WORDS,
    match_chart,
    match_columns,
    match_figures,
    match_group,
    match_period,
    match_ranking,
    plain,
)
from chat_proc.models.offline.programs import Base, is_overview
from chat_proc.models.offline.results import GroupRow, TableResult
from chat_proc.models.offline.words import significant_words

_LEANS = re.compile(
    r"^\W*(?:and|now|then|but|so|ok(?:ay)?|also|only|just|same|what about|how about|what if|the same|instead|or)\b"
    r"|\b(?:instead|too|as well|it|that|those|them|these|they|again|the same|as (?:an? )?\w+)\W*$"
    r"|\b(?:show|plot|draw|chart|give|make|do|split|break|sort|group) (?:me )?(?:it|that|this|them|those|the same)\b",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"^\W*(?:(?:and|but|so|ok(?:ay)?|now)[\s,]+)?"
    r"(?:(?:what|how) about|what of|(?:and|only|just|now)(?: only| just)?(?: for| in| the)|for|only|just)\s+"
    r"(?:just |only |for |in |the )*(?P<what>[^?!.]{1,60})[?!.\s]*$",
    re.IGNORECASE,
)
_BARE = re.compile(r"^\W*(?:and|or)\s+(?P<what>[^?!.\s]{2,30})[?!.\s]*$", re.IGNORECASE)
_NEEDS_PROGRAM = re.compile(r"\b(?:chart|plot|graph|diagram|draw|table|file|show|csv|download|list)\b", re.IGNORECASE)
_SMALL_WORDS = (
    "one now only just ok okay so but also then please total sum average mean highest lowest best worst most least "
    "make made do did perform sell sold come get got had have value figure number group top bottom maximum minimum "
    "max min largest smallest biggest compare compared comparison versus v than between difference came out exactly "
    "again give me overall row strongest weakest all together altogether result higher lower more less as with into "
    "by per see want like look median instead same better worse ahead behind two three five ten first second third"
)


def read_known(question: str, last: TableResult) -> str | None:
    """The answer if the last result contains it: the best or worst group, one or two groups by name, or one figure."""
    if _NEEDS_PROGRAM.search(question) or not is_only_about(question, _names(last)):
        return None
    columns = list(last.columns)
    grouped = {name for name, _ in last.by}
    named = [name for name in match_columns(question, columns) if name not in grouped]
    if any(name not in last.totals for name in named) or match_chart(question):
        return None
    figures = [figure for figure in match_figures(question) if figure not in ("min", "max")]
    names = [row for row in last.groups if f" {plain(row.name).strip()} " in plain(question)]
    whole = last.group is not None and len(last.groups) == last.group_count
    if whole and _asks_same_groups(question, last):
        measure = next(iter([name for name in named if name in last.measures] or last.measures), "")
        figure = choose_figure(figures or last.figures)
        if (measure or not last.measures) and figure in ("total", "mean") and "count" not in figures:
            if names:
                return _tell_groups(names, measure, figure, last)
            if (ranking := match_ranking(question)) is not None:
                return _tell_ranking(ranking, measure, figure, last)
        if figures and match_ranking(question) is not None:
            return None
    if names or match_group(question, columns) or match_period(question) or (last.by and leans(question)):
        return None
    return _tell_figures(match_figures(question), named, last)


def build_base(question: str, last: TableResult) -> Base:
    """What the question omits: all of the last analysis if it refers to it, otherwise only column and figure."""
    if is_overview(question):
        return Base()
    measures = tuple(last.measures or last.totals)
    named = match_columns(question, list(last.columns))
    if not leans(question) and (named or "count" in match_figures(question)):
        figures = () if any(name in last.numbers for name in named) else last.figures
        return Base(measures=measures, figures=tuple(figure for figure in figures if figure in ("total", "mean")))
    overall = re.search(r"\b(?:overall|in total|altogether|all together|everything)\b", question, re.IGNORECASE)
    ranked = match_ranking(question) is not None
    figures = tuple(figure for figure in last.figures if not (ranked and figure in ("min", "max")))
    return Base(() if overall else last.by, measures, figures, {} if overall else dict(last.filters))


def leans(question: str) -> bool:
    """Whether the question reads like a continuation of another."""
    return _LEANS.search(question) is not None or read_about(question) is not None


def read_about(question: str) -> str | None:
    """The X of "what about X?" or "and for X?"."""
    found = _ABOUT.match(question) or _BARE.match(question)
    what = re.sub(r"\s+(?:only|instead|now|then|too|please)$", "", found["what"].strip()) if found else ""
    is_value = 0 < len(what.split()) <= 4 and not match_period(f"per {what}") and not is_only_about(what, ())
    return what if is_value else None


def is_only_about(question: str, names: Iterable[str]) -> bool:
    """Whether every significant word is one of these names or belongs to the vocabulary of figures."""
    known = set(plain(" ".join((*names, _SMALL_WORDS))).split())
    return all(word in known or word.isdigit() for word in significant_words(question))


def fits(question: str, last: TableResult) -> bool:
    """Whether a question without a column name may still refer to the last analysis."""
    if read_about(question) is not None:
        return True
    return leans(question) and is_only_about(_NEEDS_PROGRAM.sub("", question), _names(last))


def _names(last: TableResult) -> list[str]:
    return [*last.columns, *(row.name for row in last.groups), last.group or "", *PERIOD_WORDS.values()]


def _asks_same_groups(question: str, last: TableResult) -> bool:
    columns = list(last.columns)
    group = match_group(question, columns, [name for name in columns if name not in last.numbers])
    period = match_period(question)
    same_group = group is None or [group] == [name for name, _ in last.by]
    return same_group and (period is None or period in [each for _, each in last.by])


def _tell_groups(rows: list[GroupRow], measure: str, figure: str, last: TableResult) -> str:
    ranked = _rank(measure, figure, last)
    lines = [
        f"- **{row.name}**: {_tell_value(row, measure, figure)}, number {ranked.index(row) + 1} of {len(ranked)}"
        for row in rows
        if row in ranked
    ]
    if len(lines) == 2 and measure:
        first, second = (row.values[measure].figure(figure) or 0.0 for row in rows)
        high, low = (rows[0], rows[1]) if first >= second else (rows[1], rows[0])
        lines.append(f"\n{high.name} is ahead of {low.name} by {format_number(round(abs(first - second), 6))}.")
    return "\n".join(lines) or f"There is no {LABELS[figure]} {measure} for it."


def _tell_ranking(ranking: tuple[str, int], measure: str, figure: str, last: TableResult) -> str | None:
    side, count = ranking
    ranked = _rank(measure, figure, last)
    ordered = ranked if side == "high" else ranked[::-1]
    if not ordered:
        return None
    word = "highest" if side == "high" else "lowest"
    what = f"{LABELS[figure]} {measure}" if measure else "number of rows"
    if count > 1:
        rows = [f"{at}. {row.name}: {_tell_value(row, measure, figure)}" for at, row in enumerate(ordered[:count], 1)]
        return f"The {min(count, len(ordered))} of {last.group} with the {word} {what}:\n\n" + "\n".join(rows)
    best, other = ordered[0], ordered[-1]
    against = f" The {'lowest' if side == 'high' else 'highest'} is {other.name} with {_value(other, measure, figure)}."
    told = f"**{best.name}** has the {word} {what} by {last.group}: {_value(best, measure, figure)}."
    return told + (against if len(ordered) > 1 else "")


def _tell_figures(figures: list[str], named: list[str], last: TableResult) -> str | None:
    wanted = [figure for figure in figures if figure in LABELS]
    measures = named or (list(last.totals) if len(last.totals) == 1 else [])
    if figures == ["count"] and not named:
        return _tell_rows(last)
    if last.filters or not wanted or not measures or "count" in figures:
        return None
    return "\n".join(
        f"The {LABELS[figure]} {name} is {format_number(last.totals[name].figure(figure))}."
        for name in measures
        for figure in wanted
    )


def _tell_rows(last: TableResult) -> str:
    every = f"{last.file} has {format_number(last.rows)} rows"
    return (
        f"{every}; {format_number(last.used_rows)} of them where {render_filters(last)}."
        if last.filters
        else f"{every}."
    )


def _rank(measure: str, figure: str, last: TableResult) -> list[GroupRow]:
    if not measure:
        return sorted(last.groups, key=lambda row: -row.rows)
    valued = [row for row in last.groups if measure in row.values and row.values[measure].figure(figure) is not None]
    return sorted(valued, key=lambda row: -(row.values[measure].figure(figure) or 0.0))


def _tell_value(row: GroupRow, measure: str, figure: str) -> str:
    rows = f"{format_number(row.rows)} row{'s' if row.rows != 1 else ''}"
    return f"{LABELS[figure]} {measure} {_value(row, measure, figure)} ({rows})" if measure else rows


def _value(row: GroupRow, measure: str, figure: str) -> str:
    return format_number(row.values[measure].figure(figure) if measure else row.rows)
